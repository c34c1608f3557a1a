"""Inputs of a training step: captions, and the features or pixels of images and clips.

Tables lie on the accelerator whole, so that taking a batch is one gather there.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.data.captions import CaptionTable
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.vision.pictures import read_square, to_square

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


def read_pixels(images: Sequence[str | Path | Image], size: int) -> Tensor:
    """Decode images in threads and squeeze them into squares, uint8 ``(n, size, size, RGB)``.

    Images that are open already must be upright RGB, as `read_picture` returns them.
    """

    def pixels(image: str | Path | Image) -> NDArray[np.uint8]:
        if isinstance(image, str | Path):
            return read_square(image, size).pixels
        return to_square(image, size).pixels

    with ThreadPoolExecutor() as pool:
        return torch.from_numpy(np.stack(list(pool.map(pixels, images))))


class VisualTable(Protocol):
    """Images or clips by number, as packed rows of features."""

    def __len__(self) -> int: ...

    def rows(self, items: Indices, generator: np.random.Generator | None) -> tuple[Tensor, Packing]:
        """Return the items' features ``(tokens, width)`` and their packing.

        ``generator`` draws augmentation; None for no augmentation.
        """
        ...


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

    def rows(self, items: Indices, generator: np.random.Generator | None) -> tuple[Tensor, Packing]:
        """Return the stored features; they cannot be augmented."""
        lengths = self.lengths[items]
        before = np.cumsum(lengths) - lengths
        places = np.repeat(self.starts[items] - before, lengths) + np.arange(lengths.sum())
        device = self.features.device
        index = torch.from_numpy(places).to(device, non_blocking=True)
        return self.features[index].float(), Packing.of(lengths, device)


class PixelTable:
    """Images as pixels, with the image backbone that encodes them and may be trained along.

    An image becomes its global vector, then one vector for each cell of the feature map.
    """

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
        """Place pixels and network on the device.

        Args:
            pixels: uint8 ``(n, height, width, RGB)``.
            network: Image backbone, from ``(n, 3, height, width)`` to a feature map.
            mean: Of the channels, on the scale of 0 to 255.
            std: Of the channels, on the same scale.
            min_crop_area: Augmentation keeps at least this share of an image's area.
            mirror: Whether augmentation mirrors half of the images; not where left and
                right matter.
            device: Where pixels and network lie.
        """
        self.pixels = pixels.to(device)
        self.network = network.to(device)
        self.mean, self.std = mean.to(device), std.to(device)
        self.min_crop_area, self.mirror = min_crop_area, mirror

    def __len__(self) -> int:
        return len(self.pixels)

    def with_network(self, network: nn.Module) -> PixelTable:
        """Return the same images and augmentation with another image backbone."""
        other = copy.copy(self)
        other.network = network
        return other

    def rows(self, items: Indices, generator: np.random.Generator | None) -> tuple[Tensor, Packing]:
        """Encode images; they are cropped and mirrored at random if there is a generator."""
        device = self.pixels.device
        pixels = self.pixels[torch.from_numpy(items).to(device, non_blocking=True)].float()
        pixels = ((pixels - self.mean) / self.std).permute(0, 3, 1, 2)
        if generator is not None and (self.mirror or self.min_crop_area < 1):
            pixels = self._augment(pixels, generator)
        cells = self.network(pixels.contiguous(memory_format=torch.channels_last))
        cells = cells.flatten(2).transpose(1, 2)
        rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
        return rows.flatten(0, 1), Packing.of([rows.shape[1]] * len(rows), device)

    def _augment(self, pixels: Tensor, generator: np.random.Generator) -> Tensor:
        count = len(pixels)
        area = generator.uniform(self.min_crop_area, 1.0, count)
        # A crop of nearly a whole image can only have nearly its aspect ratio.
        aspect = np.clip(np.exp(generator.uniform(-0.2, 0.2, count)), area, 1 / area)
        width, height = np.sqrt(area * aspect), np.sqrt(area / aspect)
        x = generator.uniform(-1, 1, count) * (1 - width)
        y = generator.uniform(-1, 1, count) * (1 - height)
        mirror = generator.choice([-1.0, 1.0] if self.mirror else [1.0], count)
        transforms = np.zeros((count, 2, 3), np.float32)
        transforms[:, 0, 0], transforms[:, 0, 2] = width * mirror, x
        transforms[:, 1, 1], transforms[:, 1, 2] = height, y
        theta = torch.from_numpy(transforms).to(pixels.device, non_blocking=True)
        grid = F.affine_grid(theta, list(pixels.shape), align_corners=False)
        return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)
