"""Convolutions padded as TensorFlow does it, which networks of its age were trained with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SameConv(nn.Module):
    """A convolution with "same" padding: more below and to the right where it is uneven."""

    def __init__(self, weight: Tensor, bias: Tensor, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        # Channels last: what the kernels for depthwise convolution are quickest in.
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(bias)
        self.kernel, self.stride, self.groups = self.weight.shape[-1], stride, groups

    def forward(self, x: Tensor) -> Tensor:
        """Convolve; an output pixel for every ``stride`` pixels of input, counting a begun one."""
        padding = 0
        if self.kernel > 1:
            (top, bottom), (left, right) = map(self._margins, x.shape[-2:])
            if top == bottom == left == right:
                padding = top
            else:
                x = F.pad(x, (left, right, top, bottom))
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, 1, self.groups)

    def _margins(self, length: int) -> tuple[int, int]:
        outputs = math.ceil(length / self.stride)
        total = max((outputs - 1) * self.stride + self.kernel - length, 0)
        return total // 2, total - total // 2
