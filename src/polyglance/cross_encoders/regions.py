"""Images as a cross-encoder takes them: regions computed by its own image backbone.

Test-time augmentation (TTA) encodes an image in several sizes, each as it is and mirrored;
the scores or vectors of these views are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import PixelTable, read_pixels
from polyglance.batches.region_augmentation import augmented_regions
from polyglance.batches.regions import RegionSource, RegionTable
from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.projection_heads import ProjectionHeads
from polyglance.vision.backbone import open_backbone
from polyglance.vision.decoding import Source
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

_VECTOR_BATCH = 256
"""Images whose vectors are computed at a time."""


@dataclass(frozen=True)
class ImageBackboneConfig:
    """How an image backbone turns pixels into regions: the whole image, then a grid of cells."""

    backbone: str = "efficientnet-lite2"
    """A name of `polyglance weights list`, or a folder as `polyglance weights split` writes."""
    size: int = 224
    """Pixels per side; images are squeezed into a square."""
    grid: int | None = None
    """Cells per side; None for those of the network's feature map."""
    views: int = 8
    """Views of each training image: one as it is, the others cropped and mirrored."""
    min_crop_area: float = 0.5
    """The smallest share of an image's area that a crop keeps."""
    tta_sizes: tuple[int, ...] = ()
    """Further sizes for test-time augmentation, each as it is and mirrored. Scores are averaged
    over them in re-ranking and question answering."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "size", "grid", "views")
        validate_fields(self, lambda value: 0 < value <= 1, "a share from 0 to 1", "min_crop_area")
        if self.tta_sizes and self.grid is None:
            raise PolyglanceError("tta_sizes needs a grid, which is the same for all sizes: set it")


def open_image_backbone(config: ImageBackboneConfig, device: str = "cpu") -> TorchBackbone:
    """Open the network that encodes images."""
    backbone = open_backbone(config.backbone, size=config.size, device=device)
    if not isinstance(backbone, TorchBackbone):
        raise PolyglanceError(
            f"{config.backbone} cannot encode images during training: choose another backbone"
        )
    return backbone


def encode_regions(
    images: Sequence[Source | Image],
    backbone: TorchBackbone,
    config: ImageBackboneConfig,
    *,
    views: int = 1,
    seed: int = 0,
) -> RegionTable:
    """Encode images as regions.

    Args:
        images: files, or open images.
        backbone: the network.
        config: how it is applied.
        views: views of each image; those after the first are augmented.
        seed: of the augmentations.

    Returns:
        For each image its global region, then the cells of the grid.
    """
    pixels = read_pixels(images, config.size)
    return _encode_pixels(pixels, backbone, config, views=views, seed=seed)


def encode_regions_tta(
    images: Sequence[Source | Image],
    backbone: TorchBackbone,
    config: ImageBackboneConfig,
    *,
    always_mirror: bool = False,
) -> RegionTable:
    """Encode images as regions, with one view for each size and its mirror image.

    Args:
        images: files, or open images.
        backbone: the network.
        config: how it is applied; without ``tta_sizes`` there is one view.
        always_mirror: mirror images even where there is a single size.

    Returns:
        Every second view is mirrored.
    """
    if not config.tta_sizes and not always_mirror:
        return encode_regions(images, backbone, config)
    views = []
    for size in (config.size, *config.tta_sizes):
        pixels = read_pixels(images, size)
        for view in (pixels, pixels.flip(2)):
            views.append(_encode_pixels(view, backbone, config))
    return RegionTable.stack_views(views)


@torch.no_grad()
def image_vectors(heads: ProjectionHeads, regions: RegionSource, *, view: int = 0) -> Tensor:
    """Project one view of each image into the dual encoder's space, ``(images, width)``."""
    vectors = []
    for start in range(0, len(regions), _VECTOR_BATCH):
        images = np.arange(start, min(start + _VECTOR_BATCH, len(regions)))
        batch, _ = regions.take(images, view=view)
        vectors.append(heads.encode_images(batch.features, batch.packing))
    return torch.cat(vectors)


def tta_image_vectors(
    heads: ProjectionHeads,
    images: Sequence[Source | Image],
    backbone: TorchBackbone,
    config: ImageBackboneConfig,
) -> NDArray[np.float32]:
    """Average each image's vector over all sizes and their mirror images.

    Args:
        heads: the dual encoder's projection heads.
        images: files, or open images.
        backbone: the dual encoder's network.
        config: its sizes; the grid is left out, since the heads take every cell of the map.

    Returns:
        Unit vectors, ``(images, width)``.
    """
    vectors = []
    for start in range(0, len(images), _VECTOR_BATCH):
        batch, views = images[start : start + _VECTOR_BATCH], []
        for size in (config.size, *config.tta_sizes):
            single = replace(config, size=size, tta_sizes=(), grid=None)
            table = encode_regions_tta(batch, backbone, single, always_mirror=True)
            views += [image_vectors(heads, table, view=view) for view in range(table.views)]
        mean = torch.nn.functional.normalize(torch.stack(views).mean(0), dim=1)
        vectors.append(mean.float().cpu().numpy())
    return np.concatenate(vectors)


def _encode_pixels(
    pixels: Tensor,
    backbone: TorchBackbone,
    config: ImageBackboneConfig,
    *,
    views: int = 1,
    seed: int = 0,
) -> RegionTable:
    table = PixelTable(
        pixels,
        backbone.network,
        backbone.mean,
        backbone.std,
        min_crop_area=config.min_crop_area,
        device=backbone.device,
    )
    return augmented_regions(table, views=views, grid=config.grid, seed=seed)
