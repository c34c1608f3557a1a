"""Test-time augmentation: mirrored copies and corner crops, averaged into one vector.

MULE and SMALR average over ten crops: the four corners and the centre, each also mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from polyglance.vision.pictures import Square
from polyglance.vision.tokens import VisualTokens

Views = Literal["one", "mirror", "ten"]


def crop_margin(size: int, views: Views) -> int:
    """Return by how many pixels the input must exceed the crops: 32 for 224, so 256 in all."""
    return size // 7 if views == "ten" else 0


def crops(square: Square, size: int, views: Views) -> list[Square]:
    """Return the views of a picture, each ``size`` pixels a side.

    Args:
        square: The picture, ``size + crop_margin(size, views)`` pixels a side.
        size: Side of the crops.
        views: The picture alone, with its mirror image, or ten crops.
    """
    if views == "one":
        return [square]
    margin = crop_margin(size, views)
    corners = [(0, 0), (0, margin), (margin, 0), (margin, margin), (margin // 2, margin // 2)]
    pixels = [
        square.pixels[top : top + size, left : left + size]
        for top, left in (corners if margin else corners[:1])
    ]
    return [replace(square, pixels=view) for crop in pixels for view in (crop, crop[:, ::-1])]


def average_views(views: Sequence[VisualTokens]) -> VisualTokens:
    """Return the mean over the views of one picture; a single view is returned unchanged."""
    if len(views) == 1:
        return views[0]
    return replace(
        views[0],
        features=np.mean([view.features for view in views], axis=0),
        global_feature=np.mean([view.global_feature for view in views], axis=0),
    )
