"""Inputs of a training step: captions, and the features or pixels of images and clips.

Tables lie on the accelerator whole, so that taking a batch is one gather there.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.data.captions import CaptionTable
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.decoding import ImageBytes, Source, decode
from polyglance.vision.pictures import to_square

if TYPE_CHECKING:
    from PIL.Image import Image

Indices = NDArray[np.int64]


def pack_captions(
    captions: CaptionTable,
    rows: Indices,
    device: torch.device | str | None = None,
    *,
    language_ids: Indices | None = None,
) -> Text:
    """Pack captions.

    Args:
        captions: the table.
        rows: which of its captions.
        device: where the result shall lie; None for the CPU.
        language_ids: the model's row of each of the table's languages, if it has embeddings.

    Returns:
        The packed sub-words.
    """
    ids, lengths = captions.gather(rows)
    languages = None
    if language_ids is not None:
        languages = torch.from_numpy(language_ids[captions.language_ids[rows]])
    text = Text(torch.from_numpy(ids.astype(np.int64)), Packing.of(lengths), languages)
    return text if device is None else text.to(device)


def read_pixels(images: Sequence[Source | Image], size: int) -> Tensor:
    """Decode images in threads and squeeze them into squares, uint8 ``(n, size, size, RGB)``.

    Images that are open already must be upright RGB, as `read_picture` returns them.
    """

    def pixels(image: Source | Image) -> NDArray[np.uint8]:
        if isinstance(image, str | Path | ImageBytes):
            return decode(image, size)
        return to_square(image, size).pixels

    with ThreadPoolExecutor() as pool:
        return torch.from_numpy(np.stack(list(pool.map(pixels, images))))


class VisualTable(Protocol):
    """Images or clips by number, as packed rows of features."""

    def __len__(self) -> int: ...

    def select(self, items: Indices, draws: ItemDraws | None) -> VisualBatch:
        """Gather what a step needs of items, on the CPU; ``draws`` augment them, None does not."""
        ...

    def rows(self, items: Indices, draws: ItemDraws | None) -> tuple[Tensor, Packing]:
        """Return the items' features ``(tokens, width)`` and their packing."""
        ...


class VisualBatch(Protocol):
    """Some images or clips, sampled on the CPU; a frozen dataclass of tensors."""

    def load(self) -> tuple[Tensor, Packing]:
        """Return the features ``(tokens, width)`` and their packing, on the table's device."""
        ...


@dataclass(frozen=True, eq=False)
class FeatureBatch(Batch):
    """Rows of a `FeatureTable`."""

    table: FeatureTable
    index: Tensor
    packing: Packing

    def load(self) -> tuple[Tensor, Packing]:
        """Gather the features on the table's device."""
        device = self.table.features.device
        cu_seqlens = to_device(self.packing.cu_seqlens, device)
        packing = Packing(cu_seqlens, self.packing.max_seqlen, self.packing.num_tokens)
        return self.table.features[to_device(self.index, device)].float(), packing


class FeatureTable:
    """Features extracted beforehand: a sequence of vectors for each image or clip."""

    def __init__(
        self, features: Tensor, lengths: Indices, device: torch.device | str = "cpu"
    ) -> None:
        """``features`` are ``(tokens, width)``, all sequences end to end."""
        self.features = features.to(device)
        self.lengths = np.asarray(lengths, np.int64)
        if not self.lengths.all():
            raise ValueError(f"item {int(np.argmin(self.lengths))} has no features")
        self.starts = np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, items: Indices, draws: ItemDraws | None) -> FeatureBatch:
        """Find the rows of items, on the CPU; stored features cannot be augmented."""
        lengths = self.lengths[items]
        index = torch.from_numpy(ragged_arange(self.starts[items], lengths))
        return FeatureBatch(self, index, Packing.of(lengths))

    def rows(self, items: Indices, draws: ItemDraws | None) -> tuple[Tensor, Packing]:
        """Return the stored features."""
        return self.select(items, draws).load()


class VectorTable(FeatureTable):
    """Images encoded beforehand: one unit vector each, of the space that they share with texts."""

    def __init__(self, vectors: Tensor, device: torch.device | str = "cpu") -> None:
        """``vectors`` are ``(images, width)``."""
        super().__init__(vectors, np.ones(len(vectors), np.int64), device)


@dataclass(frozen=True)
class EarlySize:
    """A smaller size of augmented images in the first steps, which are the faster for it."""

    size: int
    """Pixels per side."""
    steps: int
    """How many steps."""


class ImagePixels(ABC):
    """Images as pixels, with the image backbone that encodes them and may be trained along.

    An image becomes its global vector, then one vector for each cell of the feature map. Pixels lie
    in memory (`PixelTable`) or are read while training
    (`polyglance.batches.streamed_pixels.StreamedPixels`).
    """

    def __init__(
        self,
        network: nn.Module,
        mean: Tensor,
        std: Tensor,
        *,
        min_crop_area: float = 0.5,
        mirror: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        """Place the network on the device.

        Args:
            network: Image backbone, from ``(n, 3, height, width)`` to a feature map.
            mean: Of the channels, on the scale of 0 to 255.
            std: Of the channels, on the same scale.
            min_crop_area: Augmentation keeps at least this share of an image's area.
            mirror: Whether augmentation mirrors half of the images; not where left and
                right matter.
            device: Where the network lies.
        """
        self.network = network.to(device)
        self.mean, self.std = mean.to(device), std.to(device)
        self.min_crop_area, self.mirror = min_crop_area, mirror
        self.early: EarlySize | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """Where images are encoded."""
        return self.mean.device

    @abstractmethod
    def read(self, items: Indices) -> Tensor:
        """Return the pixels of whole images, uint8 ``(n, height, width, RGB)``."""

    @abstractmethod
    def select(self, items: Indices, draws: ItemDraws | None) -> VisualBatch:
        """Choose crops and mirroring of images, on the CPU; whole images without draws."""

    def rows(self, items: Indices, draws: ItemDraws | None) -> tuple[Tensor, Packing]:
        """Encode images; they are cropped and mirrored at random if there are draws."""
        return self.select(items, draws).load()

    def with_network(self, network: nn.Module) -> Self:
        """Return the same images and augmentation with another image backbone."""
        other = copy.copy(self)
        other.network = network
        return other

    def encode_pixels(
        self, pixels: Tensor, crops: Tensor | None, *, size: int | None = None
    ) -> tuple[Tensor, Packing]:
        """Encode images.

        Args:
            pixels: uint8 ``(n, height, width, RGB)``.
            crops: Affine transforms ``(n, 2, 3)``; None for whole images.
            size: Pixels per side to scale images to; None for their own.
        """
        device = self.device
        pixels = to_device(pixels, device).float()
        pixels = ((pixels - self.mean) / self.std).permute(0, 3, 1, 2)
        if crops is not None:
            side = pixels.shape[-1] if size is None else size
            shape = [len(pixels), 3, side, side]
            grid = F.affine_grid(to_device(crops, device), shape, align_corners=False)
            pixels = F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)
        if size is not None and size != pixels.shape[-1]:
            pixels = F.interpolate(pixels, (size, size), mode="bicubic", antialias=True)
        cells = self.network(pixels.contiguous(memory_format=torch.channels_last))
        cells = cells.flatten(2).transpose(1, 2)
        rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
        return rows.flatten(0, 1), Packing.of([rows.shape[1]] * len(rows), device)

    def size_at(self, draws: ItemDraws | None) -> int | None:
        """Return the side in pixels of augmented images at a step; None for their own."""
        if draws is None or self.early is None or draws.step >= self.early.steps:
            return None
        return self.early.size

    def crops(self, draws: ItemDraws | None) -> Tensor | None:
        """Draw affine transforms of images; None for whole images."""
        if draws is None or not (self.mirror or self.min_crop_area < 1):
            return None

        def uniform(name: str, low: float, high: float) -> Tensor:
            return low + draws.per_item(name) * (high - low)

        area = uniform("area", self.min_crop_area, 1.0)
        # A crop of nearly a whole image can only have nearly its aspect ratio.
        aspect = uniform("aspect", -0.2, 0.2).exp().clamp(area, 1 / area)
        width, height = (area * aspect).sqrt(), (area / aspect).sqrt()
        mirror = torch.where(uniform("mirror", 0, 1) < (0.5 if self.mirror else 0.0), -1.0, 1.0)
        transforms = torch.zeros(len(area), 2, 3)
        transforms[:, 0, 0] = (width * mirror).float()
        transforms[:, 0, 2] = (uniform("x", -1, 1) * (1 - width)).float()
        transforms[:, 1, 1] = height.float()
        transforms[:, 1, 2] = (uniform("y", -1, 1) * (1 - height)).float()
        return transforms


@dataclass(frozen=True, eq=False)
class PixelBatch(Batch):
    """Images of a `PixelTable`, and their crops."""

    table: PixelTable
    items: Tensor
    crops: Tensor | None
    """``(n, 2, 3)`` affine transforms; None for whole images."""
    size: int | None = None
    """Pixels per side to scale images to; None for their own."""

    def load(self) -> tuple[Tensor, Packing]:
        """Crop and encode the images on the table's device."""
        pixels = self.table.pixels[to_device(self.items, self.table.device)]
        return self.table.encode_pixels(pixels, self.crops, size=self.size)


class PixelTable(ImagePixels):
    """Images whose pixels lie in the device's memory."""

    def __init__(
        self,
        pixels: Tensor,
        network: nn.Module,
        mean: Tensor,
        std: Tensor,
        *,
        min_crop_area: float = 0.5,
        mirror: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        """Place pixels, uint8 ``(n, height, width, RGB)``, on the device; see `ImagePixels`."""
        super().__init__(
            network, mean, std, min_crop_area=min_crop_area, mirror=mirror, device=device
        )
        self.pixels = pixels.to(device)

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, items: Indices) -> Tensor:
        """Gather the pixels of images, on the device."""
        return self.pixels[torch.from_numpy(items).to(self.pixels.device)]

    def select(self, items: Indices, draws: ItemDraws | None) -> PixelBatch:
        """Choose crops and mirroring of images, on the CPU; whole images without draws."""
        return PixelBatch(self, torch.from_numpy(items), self.crops(draws), self.size_at(draws))
