"""ResNet-50 (https://arxiv.org/abs/1512.03385), whose pooled features SMALR and others use.

For inference only: batch norm is already folded into the convolutions. As in the paper,
and unlike later variants, a block that halves the map does so in its first convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.vision.torch_backbone import TorchBackbone

_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks per stage and their inner width, a quarter of their output width."""
_ON_DISK = {".look.": ".spatial.", ".narrow.": ".reduce.", ".widen.": ".expand."}
"""Names of the layers in the weights file and here."""


class Bottleneck(nn.Module):
    """Reduce, 3 x 3 convolution, expand; add the input, projected where its shape differs."""

    def __init__(self, inputs: int, width: int, stride: int, *, is_first: bool) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(inputs, width, 1, stride)
        self.spatial = nn.Conv2d(width, width, 3, padding=1)
        self.expand = nn.Conv2d(width, 4 * width, 1)
        self.shortcut = nn.Conv2d(inputs, 4 * width, 1, stride) if is_first else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's feature map, half the input's size with stride 2."""
        y = F.relu_(self.spatial(F.relu_(self.reduce(x))))
        return F.relu_(self.expand(y) + (x if self.shortcut is None else self.shortcut(x)))


class Network(nn.Module):
    """ResNet-50 up to its feature map: 2048 channels, 1/32 of the input's sides."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, padding=3)
        self.stages = nn.ModuleList()
        inputs = 64
        for number, (blocks, width) in enumerate(_STAGES):
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if block == 0 and number > 0 else 1
                stage.append(Bottleneck(inputs, width, stride, is_first=block == 0))
                inputs = 4 * width
            self.stages.append(stage)
        self.classifier = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature map of normalised pictures (n, RGB, height, width)."""
        x = F.max_pool2d(F.relu_(self.stem(x)), 3, 2, padding=1)
        for stage in self.stages:
            x = stage(x)
        return x


class ResNet50(TorchBackbone):
    """A `Backbone`: ResNet-50 with the weights of a folder."""

    network: Network

    def build_network(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Network:
        """See `TorchBackbone.build_network`."""
        with torch.device("meta"):
            network = Network()
        network.load_state_dict({_renamed(n): v.float() for n, v in state.items()}, assign=True)
        # The fastest layout for convolutions, on CPU and accelerator.
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _renamed(name: str) -> str:
    for old, new in _ON_DISK.items():
        name = name.replace(old, new)
    return name
