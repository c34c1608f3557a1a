"""A small image network, trained from scratch as the backbone of toy models."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Encodes pictures to a feature map of 1/8 of their sides; each layer halves them.

    Coordinates are appended to the features, because MMP's pooling heads have no positions
    and the toy dataset is about left and right.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        channels = (3, 32, 64)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            )
            for before, after in pairwise(channels)
        )
        self.last = nn.Conv2d(channels[-1] + 2, width, 3, stride=2, padding=1)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the ``(n, width, rows, columns)`` map of ``(n, 3, height, width)`` pictures."""
        for layer in self.layers:
            pictures = layer(pictures)
        rows, columns = (
            torch.linspace(-1, 1, steps, device=pictures.device) for steps in pictures.shape[2:]
        )
        coordinates = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
        coordinates = coordinates.to(pictures.dtype).expand(len(pictures), -1, -1, -1)
        cells: Tensor = F.relu(self.last(torch.cat([pictures, coordinates], dim=1)))
        return cells
