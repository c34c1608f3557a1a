"""A small network over small pictures, trained from nothing: the eyes of toy-world models."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Pictures to a map of an eighth of their sides; each layer halves them.

    The place of a cell is laid beside what is in it, because MMP's pooling heads
    know no positions and the toy world is about left and right.
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
        """The ``(n, width, rows, columns)`` map of ``(n, 3, height, width)`` pictures."""
        for layer in self.layers:
            pictures = layer(pictures)
        rows, columns = (
            torch.linspace(-1, 1, steps, device=pictures.device) for steps in pictures.shape[2:]
        )
        place = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
        place = place.to(pictures.dtype).expand(len(pictures), -1, -1, -1)
        cells: Tensor = F.relu(self.last(torch.cat([pictures, place], dim=1)))
        return cells
