"""Regions of pictures as a network sees them, from several looks at each.

Features that are stored once are the same in every epoch, and a model that reads words
beside regions soon knows small corpora by heart. Here each picture is seen plainly and,
to train on, cropped and mirrored anew for every further view.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.training.region_table import RegionTable
from polyglance.training.visuals import PixelTable
from polyglance.vision.tokens import grid_boxes, pooling_weights

_WHOLE = (0.0, 0.0, 1.0, 1.0)


@torch.no_grad()
def region_views(
    pictures: PixelTable,
    *,
    views: int = 1,
    grid: int | None = None,
    seed: int = 0,
    at_once: int = 256,
) -> RegionTable:
    """The whole of each picture and the cells of its map; the first view is the plain one.

    ``grid`` cells a side are laid over the map, as many as it has by default. Boxes are
    those of the crop. Regions have no labels.
    """
    blocks = np.array_split(np.arange(len(pictures)), -(-len(pictures) // at_once))
    seen = []
    for view in range(views):
        generator = np.random.default_rng([seed, view]) if view else None
        for block in blocks:
            rows = pictures.rows(block, generator)[0]
            seen.append(_laid_over(rows.view(len(block), -1, rows.shape[1]), grid).half())
    features = torch.cat(seen).flatten(0, 1)
    each = len(features) // (views * len(pictures))
    side = round((each - 1) ** 0.5)
    boxes = torch.from_numpy(np.concatenate([np.array([_WHOLE], np.float32), grid_boxes(side)]))
    return RegionTable(
        features,
        boxes.repeat(len(pictures), 1),
        torch.full((each * len(pictures),), NO_LABEL),
        np.full(len(pictures), each),
        pictures.pixels.device,
        views=views,
        whole_first=True,
    )


def _laid_over(seen: Tensor, grid: int | None) -> Tensor:
    """Pictures x (the whole, then cells), with other cells for those of the map."""
    side = round((seen.shape[1] - 1) ** 0.5)
    if grid is None or grid == side:
        return seen
    weights = torch.from_numpy(pooling_weights(grid, side)).to(seen)
    cells = seen[:, 1:].reshape(len(seen), side, side, -1)
    pooled = torch.einsum("gh,kw,nhwc->ngkc", weights, weights, cells)
    return torch.cat([seen[:, :1], pooled.flatten(1, 2)], dim=1)
