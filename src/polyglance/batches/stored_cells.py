"""Cells of images, computed once for some views of each, for frozen networks.

A frozen network gives the same cells for a view in every step. Where a few views of each image
suffice, a step gathers cells from a table instead of cropping and encoding pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import ImagePixels, Indices
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws

_BLOCK = 512
"""Images encoded at a time."""


@dataclass(frozen=True, eq=False)
class CellBatch(Batch):
    """Images of a `CellTable`, and the view of each."""

    table: CellTable
    index: Tensor
    """``(n,)``: rows of the table, which has all images in one view after the other."""

    def load(self) -> tuple[Tensor, Packing]:
        """Gather the mean and the cells of each image on the table's device."""
        cells = self.table.cells
        rows = cells[to_device(self.index, cells.device)]
        return rows.flatten(0, 1), Packing.of([rows.shape[1]] * len(rows), cells.device)


class CellTable:
    """The cells of images, in views that are drawn once: the whole image, then crops."""

    def __init__(self, images: ImagePixels, views: int, seed: int) -> None:
        """Encode all images.

        Args:
            images: Pixels, their augmentation and the network.
            views: How many of each image.
            seed: Draws the crops.
        """
        self.num_images, self.views = len(images), views
        first = _encode(images, np.arange(min(1, len(images))), None)
        self.cells = first.new_empty(views * len(images), *first.shape[1:])
        """``(views * images, 1 + cells, width)``; in 16 bits on an accelerator."""
        for view in range(views):
            for items in np.split(np.arange(len(images)), range(_BLOCK, len(images), _BLOCK)):
                draws = ItemDraws.of(seed + view, items) if view else None
                start = view * len(images) + int(items[0])
                self.cells[start : start + len(items)] = _encode(images, items, draws)

    def __len__(self) -> int:
        return self.num_images

    @property
    def device(self) -> torch.device:
        """Where the cells lie."""
        return self.cells.device

    def select(self, items: Indices, draws: ItemDraws | None) -> CellBatch:
        """Draw a view of each image; the whole image without draws."""
        index = torch.from_numpy(items)
        if draws is not None:
            view = (draws.per_item("view") * self.views).long().clamp(max=self.views - 1)
            index = index + view * self.num_images
        return CellBatch(self, index)


def _encode(images: ImagePixels, items: Indices, draws: ItemDraws | None) -> Tensor:
    """Return ``(n, 1 + cells, width)``."""
    kind = images.device.type
    with torch.no_grad(), torch.autocast(kind, torch.bfloat16, kind == "cuda"):
        rows = images.rows(items, draws)[0]
    rows = rows.bfloat16() if kind == "cuda" else rows
    return rows.view(len(items), -1, rows.shape[1])
