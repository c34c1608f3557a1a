"""Regions computed from pixels by an image backbone, with augmented views of each image.

Stored features are the same in every epoch, and a cross-encoder soon memorises a small
corpus. Here each image is encoded as it is and, for training, in further random crops and
mirrorings.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.inputs import ImagePixels
from polyglance.batches.regions import RegionTable
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.vision.tokens import grid_boxes, pooling_weights

_GLOBAL_BOX = (0.0, 0.0, 1.0, 1.0)


@torch.no_grad()
def augmented_regions(
    images: ImagePixels,
    *,
    views: int = 1,
    grid: int | None = None,
    seed: int = 0,
    batch: int = 256,
) -> RegionTable:
    """Encode each image as its global region followed by the cells of its feature map.

    Args:
        images: pixels and the network that encodes them.
        views: views of each image; the first is not augmented.
        grid: cells per side to pool the map to; None keeps the map's own.
        seed: of the augmentations.
        batch: images encoded at a time.

    Returns:
        Regions without labels; boxes are relative to the crop.
    """
    blocks = np.array_split(np.arange(len(images)), -(-len(images) // batch))
    encoded = []
    for view in range(views):
        for block in blocks:
            draws = ItemDraws.of(seed * 1_009 + view, block) if view else None
            rows = images.rows(block, draws)[0]
            encoded.append(pool_cells(rows.view(len(block), -1, rows.shape[1]), grid).half())
    features = torch.cat(encoded).flatten(0, 1)
    regions = len(features) // (views * len(images))
    return RegionTable(
        features,
        region_boxes(regions).repeat(len(images), 1),
        torch.full((regions * len(images),), NO_LABEL),
        np.full(len(images), regions),
        images.device,
        views=views,
        prepend_global=True,
    )


def region_boxes(regions: int) -> Tensor:
    """Return the boxes of an image's global region and of its cells, ``(regions, 4)``."""
    side = round((regions - 1) ** 0.5)
    boxes = np.concatenate([np.array([_GLOBAL_BOX], np.float32), grid_boxes(side)])
    return torch.from_numpy(boxes)


def pool_cells(features: Tensor, grid: int | None) -> Tensor:
    """Pool ``(images, 1 + side * side, width)`` to ``grid`` cells per side, global one first."""
    side = round((features.shape[1] - 1) ** 0.5)
    if grid is None or grid == side:
        return features
    weights = torch.from_numpy(pooling_weights(grid, side)).to(features)
    cells = features[:, 1:].reshape(len(features), side, side, -1)
    pooled = torch.einsum("gh,kw,nhwc->ngkc", weights, weights, cells)
    return torch.cat([features[:, :1], pooled.flatten(1, 2)], dim=1)
