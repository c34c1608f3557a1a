"""Convolution with TensorFlow's "same" padding, with which several networks were trained."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SameConv(nn.Module):
    """A convolution with "same" padding; an odd margin is larger below and to the right."""

    def __init__(self, weight: Tensor, bias: Tensor, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        # Channels last is the fastest layout for depthwise convolution.
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(bias)
        self.kernel, self.stride, self.groups = self.weight.shape[-1], stride, groups

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of ``ceil(side / stride)`` cells per side."""
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
