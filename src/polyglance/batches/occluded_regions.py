"""Regions of images with some cells hidden, for models that explain by hiding cells.

`polyglance.batches.streamed_pixels.PixelRegions` hides none, and reads images from a disk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import ImagePixels, VisualBatch
from polyglance.batches.region_augmentation import region_boxes
from polyglance.batches.regions import Indices
from polyglance.batches.stored_cells import CellTable
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import NO_LABEL


@dataclass(frozen=True, eq=False)
class OccludedRegionBatch(Batch):
    """Images whose cells are computed on the device; an image that comes twice is encoded once."""

    source: OccludedRegions
    pixels: VisualBatch
    """The distinct images."""
    rows: Tensor
    """``(regions,)``: rows of the distinct images' cells, without those that are dropped."""
    packing: Packing
    global_rows: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """``(regions,)``: no region has a label."""
        return torch.full((self.packing.num_tokens,), NO_LABEL)

    def load(self) -> Regions:
        """Encode the images, without gradients, and gather the cells that are kept."""
        device = self.source.device
        with torch.no_grad():
            features = self.pixels.load()[0]
        rows = to_device(self.rows, device)
        packing = Packing(
            to_device(self.packing.cu_seqlens, device),
            self.packing.max_seqlen,
            self.packing.num_tokens,
        )
        boxes = self.source.boxes[rows % len(self.source.boxes)]
        return Regions(features[rows].float(), boxes, packing)


class OccludedRegions:
    """A `RegionSource` of images as pixels with a frozen image network.

    Regions are the mean of the feature map, then its cells, as `polyglance.encoders.reader` takes
    them. Augmentation crops and mirrors, and leaves out cells, which explanations by occlusion do.
    """

    prepend_global = True
    views = 1
    has_labels = False

    def __init__(
        self, images: ImagePixels | CellTable, grid: int, width: int, *, drop_cells: float = 0
    ) -> None:
        """Wrap images.

        Args:
            images: Pixels and the network that encodes them, or cells that it made.
            grid: Cells per side of its feature map.
            width: Size of a cell's vector.
            drop_cells: Share of the cells that training leaves out of an image, at most: each
                image draws its own share.
        """
        self.images, self.grid, self.width, self.drop_cells = images, grid, width, drop_cells
        self.lengths = np.full(len(images), 1 + grid**2, np.int64)
        self.boxes = region_boxes(1 + grid**2).to(self.device)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """Where images are encoded."""
        return self.images.device

    def max_label(self) -> int:
        """Return that no region has a label."""
        return NO_LABEL

    def select(self, images: Indices, draws: ItemDraws | None = None) -> OccludedRegionBatch:
        """Choose crops and cells, on the CPU; whole images with all cells without draws."""
        distinct, first, places = np.unique(images, return_index=True, return_inverse=True)
        own = None if draws is None else replace(draws, items=draws.items[torch.from_numpy(first)])
        size = len(self.boxes)
        kept = self._kept(len(images), draws)
        rows = (places.reshape(-1, 1) * size + np.arange(size))[kept]
        return OccludedRegionBatch(
            self,
            self.images.select(distinct.astype(np.int64), own),
            torch.from_numpy(rows.astype(np.int64)),
            Packing.of(kept.sum(1)),
        )

    def _kept(self, count: int, draws: ItemDraws | None) -> NDArray[np.bool_]:
        size = len(self.boxes)
        if draws is None or not self.drop_cells:
            return np.ones((count, size), bool)
        share = self.drop_cells * draws.per_item("drop share").numpy()
        packing = Packing.of([size] * count)
        drawn = draws.per_row("drop cells", packing).numpy().reshape(count, size)
        kept: NDArray[np.bool_] = drawn >= share[:, None]
        kept[:, 0] = True  # the mean is never hidden
        return kept

    def take(
        self, images: Indices, draws: ItemDraws | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """Return the packed regions of images on the device, and that they have no labels."""
        selected = self.select(images, draws)
        return selected.load(), to_device(selected.labels, self.device)
