"""ResNet-50 (https://arxiv.org/abs/1512.03385), whose pooled vectors SMALR and others start from.

For inference only: the weights come with batch norm folded into the convolutions.
As in the paper, and unlike later ones, a block that halves the map does so in its
first convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.vision.torch_backbone import TorchBackbone

_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks of each stage and the width inside them, a quarter of that of their output."""


class Bottleneck(nn.Module):
    """Narrow, look around, widen; add the input, through a shortcut where its shape differs."""

    def __init__(self, before: int, width: int, stride: int, *, first: bool) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(before, width, 1, stride)
        self.look = nn.Conv2d(width, width, 3, padding=1)
        self.widen = nn.Conv2d(width, 4 * width, 1)
        self.shortcut = nn.Conv2d(before, 4 * width, 1, stride) if first else None

    def forward(self, x: Tensor) -> Tensor:
        """The block's map, half as large with stride 2."""
        y = F.relu_(self.look(F.relu_(self.narrow(x))))
        return F.relu_(self.widen(y) + (x if self.shortcut is None else self.shortcut(x)))


class Network(nn.Module):
    """ResNet-50 up to its feature map of 2048 channels, a 32nd of the input a side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, padding=3)
        self.stages = nn.ModuleList()
        before = 64
        for number, (blocks, width) in enumerate(_STAGES):
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if block == 0 and number > 0 else 1
                stage.append(Bottleneck(before, width, stride, first=block == 0))
                before = 4 * width
            self.stages.append(stage)
        self.classifier = nn.Linear(before, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """The feature map of normalised pictures."""
        x = F.max_pool2d(F.relu_(self.stem(x)), 3, 2, padding=1)
        for stage in self.stages:
            x = stage(x)
        return x


class ResNet50(TorchBackbone):
    """A `Backbone`: ResNet-50 with the weights of a folder."""

    network: Network

    def make_network(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Network:
        """See `TorchBackbone.make_network`."""
        with torch.device("meta"):
            network = Network()
        network.load_state_dict({n: value.float() for n, value in state.items()}, assign=True)
        # What convolutions are quickest in, on processors and accelerators alike.
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
