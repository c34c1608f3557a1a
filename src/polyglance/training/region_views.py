"""Regions of pictures as a network sees them, from several looks at each.

Features that are stored once are the same in every epoch, and a model that reads words
beside regions soon knows small corpora by heart. Here each picture is seen plainly and,
to train on, cropped and mirrored anew for every further view.
"""

from __future__ import annotations

import numpy as np
import torch

from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.training.region_table import RegionTable
from polyglance.training.visuals import PixelTable
from polyglance.vision.tokens import grid_boxes

_WHOLE = (0.0, 0.0, 1.0, 1.0)


@torch.no_grad()
def region_views(
    pictures: PixelTable, *, views: int = 1, seed: int = 0, at_once: int = 256
) -> RegionTable:
    """The whole of each picture and the cells of its map; the first view is the plain one.

    Boxes are those of the crop. Regions have no labels.
    """
    blocks = np.array_split(np.arange(len(pictures)), -(-len(pictures) // at_once))
    seen = []
    for view in range(views):
        generator = np.random.default_rng([seed, view]) if view else None
        seen += [pictures.rows(block, generator)[0].half() for block in blocks]
    features = torch.cat(seen)
    each = len(features) // (views * len(pictures))
    grid = round((each - 1) ** 0.5)
    boxes = torch.from_numpy(np.concatenate([np.array([_WHOLE], np.float32), grid_boxes(grid)]))
    return RegionTable(
        features,
        boxes.repeat(len(pictures), 1),
        torch.full((each * len(pictures),), NO_LABEL),
        np.full(len(pictures), each),
        pictures.pixels.device,
        views=views,
    )
