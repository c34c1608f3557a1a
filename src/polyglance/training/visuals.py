"""Where a training step takes its pictures and clips from: features, or pixels to learn from.

Both lie on the accelerator as one table, so that a batch is one gather there.
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

from polyglance.nn.packing import Packing
from polyglance.vision.pictures import read_square, to_square

if TYPE_CHECKING:
    from PIL.Image import Image

Indices = NDArray[np.int64]


def read_pixels(pictures: Sequence[str | Path | Image], size: int) -> Tensor:
    """Pictures squeezed into squares, uint8 ``(n, size, size, RGB)``, decoded by threads.

    Those that are opened already are upright RGB, as `read_picture` gives them.
    """

    def pixels(picture: str | Path | Image) -> NDArray[np.uint8]:
        if isinstance(picture, str | Path):
            return read_square(picture, size).pixels
        return to_square(picture, size).pixels

    with ThreadPoolExecutor() as pool:
        return torch.from_numpy(np.stack(list(pool.map(pixels, pictures))))


class Visuals(Protocol):
    """Pictures or clips by number, as packed rows of features."""

    def __len__(self) -> int: ...

    def rows(self, items: Indices, generator: np.random.Generator | None) -> tuple[Tensor, Packing]:
        """The features of these items; ``generator`` draws augmentation, None for none."""
        ...


class FeatureTable:
    """Features extracted beforehand: sequences of vectors, end to end."""

    def __init__(
        self, features: Tensor, lengths: Indices, device: torch.device | str = "cpu"
    ) -> None:
        self.features = features.to(device)
        self.lengths = np.asarray(lengths, np.int64)
        if not self.lengths.all():
            raise ValueError(f"item {int(np.argmin(self.lengths))} has no features")
        self.starts = np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self, items: Indices, generator: np.random.Generator | None) -> tuple[Tensor, Packing]:
        """The stored features; there is nothing to augment."""
        lengths = self.lengths[items]
        before = np.cumsum(lengths) - lengths
        places = np.repeat(self.starts[items] - before, lengths) + np.arange(lengths.sum())
        device = self.features.device
        index = torch.from_numpy(places).to(device, non_blocking=True)
        return self.features[index].float(), Packing.of(lengths, device)


class PixelTable:
    """Pictures as pixels, with the network that looks at them, which is trained as well.

    A picture becomes the vector of the whole, then one for each cell of the map.
    """

    def __init__(
        self,
        pixels: Tensor,
        network: nn.Module,
        mean: Tensor,
        deviation: Tensor,
        *,
        smallest_crop: float = 0.5,
        mirror: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        """``pixels`` are uint8 ``(n, height, width, RGB)``; mean and deviation as of 0 to 255.

        Augmentation keeps at least ``smallest_crop`` of a picture's area and
        mirrors half of the pictures, unless left and right matter.
        """
        self.pixels = pixels.to(device)
        self.network = network.to(device)
        self.mean, self.deviation = mean.to(device), deviation.to(device)
        self.smallest_crop, self.mirror = smallest_crop, mirror

    def __len__(self) -> int:
        return len(self.pixels)

    def seen_by(self, network: nn.Module) -> PixelTable:
        """The same pictures, augmented alike, through another network."""
        other = copy.copy(self)
        other.network = network
        return other

    def rows(self, items: Indices, generator: np.random.Generator | None) -> tuple[Tensor, Packing]:
        """What the network sees; cropped and mirrored where a generator is given."""
        device = self.pixels.device
        pixels = self.pixels[torch.from_numpy(items).to(device, non_blocking=True)].float()
        pixels = ((pixels - self.mean) / self.deviation).permute(0, 3, 1, 2)
        if generator is not None and (self.mirror or self.smallest_crop < 1):
            pixels = self._augmented(pixels, generator)
        cells = self.network(pixels.contiguous(memory_format=torch.channels_last))
        cells = cells.flatten(2).transpose(1, 2)
        rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
        return rows.flatten(0, 1), Packing.of([rows.shape[1]] * len(rows), device)

    def _augmented(self, pixels: Tensor, generator: np.random.Generator) -> Tensor:
        count = len(pixels)
        area = generator.uniform(self.smallest_crop, 1.0, count)
        # A crop of nearly all of a picture can only have nearly its shape.
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
