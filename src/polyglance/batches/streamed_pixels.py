"""Pixels of a corpus larger than memory: images of files or tars, decoded when they are sampled.

A batch is decoded by worker processes (`polyglance.vision.decoding`) in the background thread that
samples ahead, into pinned memory. Which images are in it depends on seed and step alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import ImagePixels
from polyglance.batches.region_augmentation import pool_cells, region_boxes
from polyglance.batches.regions import first_rows
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.vision.decoding import DecodePool, Source

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StreamedPixelBatch(Batch):
    """Decoded images, and their crops."""

    images: StreamedPixels
    pixels: Tensor
    """uint8 ``(n, size, size, RGB)``."""
    crops: Tensor | None
    """``(n, 2, 3)`` affine transforms; None for whole images."""
    size: int | None = None
    """Pixels per side to scale images to; None for their own."""

    def load(self) -> tuple[Tensor, Packing]:
        """Crop and encode the images on the network's device."""
        return self.images.encode_pixels(self.pixels, self.crops, size=self.size)


class StreamedPixels(ImagePixels):
    """Images that are decoded when they are sampled."""

    def __init__(
        self,
        sources: Sequence[Source],
        size: int,
        network: nn.Module,
        mean: Tensor,
        std: Tensor,
        *,
        min_crop_area: float = 0.5,
        mirror: bool = True,
        device: torch.device | str = "cpu",
        pool: DecodePool | None = None,
    ) -> None:
        """Prepare to read; see `ImagePixels`.

        Args:
            sources: The images, such as `polyglance.data.tars.TarImages`.
            size: Pixels per side that images are squeezed to.
            network: Image backbone.
            mean: Of the channels.
            std: Of the channels.
            min_crop_area: Augmentation keeps at least this share of an image's area.
            mirror: Whether augmentation mirrors half of the images.
            device: Where images are encoded.
            pool: Decodes them; threads of this process by default.
        """
        super().__init__(
            network, mean, std, min_crop_area=min_crop_area, mirror=mirror, device=device
        )
        self.sources, self.size = sources, size
        self.pool = DecodePool() if pool is None else pool

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def is_local(self) -> bool:
        """Whether any image can be read at any time at little cost."""
        return bool(getattr(self.sources, "is_local", True))

    @property
    def image_bytes(self) -> int:
        """The mean size of an image's file, or of its pixels where that is unknown."""
        return int(getattr(self.sources, "image_bytes", 3 * self.size**2))

    def read(self, items: Indices) -> Tensor:
        """Decode images, uint8 ``(n, size, size, RGB)``."""
        sources = [self.sources[item] for item in items.tolist()]
        return torch.from_numpy(self.pool.squares(sources, self.size))

    def select(self, items: Indices, draws: ItemDraws | None) -> StreamedPixelBatch:
        """Decode images and choose their crops, on the CPU; whole images without draws."""
        return StreamedPixelBatch(self, self.read(items), self.crops(draws), self.size_at(draws))


@dataclass(frozen=True, eq=False)
class PixelRegionBatch(Batch):
    """Decoded images, which become regions on the device."""

    source: PixelRegions
    pixels: Tensor
    crops: Tensor | None
    packing: Packing
    labels: Tensor
    global_rows: Tensor

    def load(self) -> Regions:
        """Encode the images as regions, where training computes."""
        features = self.source.encode(self.pixels, self.crops)
        boxes = self.source.boxes.repeat(len(self.pixels), 1)
        cu_seqlens = to_device(self.packing.cu_seqlens, self.source.device)
        packing = Packing(cu_seqlens, self.packing.max_seqlen, self.packing.num_tokens)
        return Regions(features, boxes, packing)


class PixelRegions:
    """A `RegionSource` of images whose regions are computed by a frozen backbone in every step.

    Where a table holds a fixed number of augmented views of each image, these are fresh in every
    epoch: one image in ``views`` stays as it is, the others are cropped and mirrored.
    """

    def __init__(self, images: StreamedPixels, *, views: int = 1, grid: int | None = None) -> None:
        """Prepare to encode.

        Args:
            images: Pixels and the network that encodes them.
            views: One in so many images is not augmented; 1 for none.
            grid: Cells per side to pool the feature map to; None keeps the map's own.
        """
        self.images, self.views, self.grid = images, views, grid
        self.prepend_global = True
        size = images.size
        example = self.encode(torch.zeros(1, size, size, 3, dtype=torch.uint8), None)
        self.lengths = np.full(len(images), len(example))
        self._width = example.shape[1]
        self.boxes = region_boxes(len(example)).to(self.device)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """Where training computes with the regions."""
        return self.images.device

    @property
    def width(self) -> int:
        """The size of a feature vector."""
        return self._width

    @property
    def has_labels(self) -> bool:
        """Cells of a feature map have no labels."""
        return False

    @property
    def is_local(self) -> bool:
        """Whether any image can be read at any time at little cost."""
        return self.images.is_local

    @property
    def image_bytes(self) -> int:
        """The mean size of an image's file."""
        return self.images.image_bytes

    def max_label(self) -> int:
        """Return `NO_LABEL`."""
        return NO_LABEL

    def select(self, images: Indices, draws: ItemDraws | None = None) -> PixelRegionBatch:
        """Decode images on the CPU; ``draws`` augment them, if there are several views."""
        crops = None
        if draws is not None and self.views > 1:
            crops = self.images.crops(draws)
            if crops is not None:
                whole = draws.per_item("views") * self.views < 1
                crops[whole] = torch.eye(2, 3)
        lengths = self.lengths[images]
        labels = torch.full((int(lengths.sum()),), NO_LABEL)
        packing = Packing.of(lengths)
        pixels = self.images.read(images)
        return PixelRegionBatch(self, pixels, crops, packing, labels, first_rows(lengths))

    def take(
        self, images: Indices, draws: ItemDraws | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """Return the packed regions of images on the device, and their labels."""
        if view:
            raise ValueError("images that are read while training have no numbered views")
        batch = self.select(images, draws)
        return batch.load(), to_device(batch.labels, self.device)

    @torch.no_grad()
    def encode(self, pixels: Tensor, crops: Tensor | None) -> Tensor:
        """Encode pixels as regions, ``(images * regions, width)`` in float32."""
        # In full precision, as regions in memory are computed, whatever training's is.
        with torch.autocast(self.device.type, enabled=False):
            rows = self.images.encode_pixels(pixels, crops)[0]
        cells = pool_cells(rows.view(len(pixels), -1, rows.shape[1]), self.grid)
        # Rounded as in a table in memory, so that both train alike.
        return cells.half().float().flatten(0, 1)
