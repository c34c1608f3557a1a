"""Looking at a picture more than once: its mirror image, and crops from the corners.

The average of several looks is a better vector of the whole than one look. MULE and
SMALR average over ten: the four corners and the centre, each mirrored as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from polyglance.vision.pictures import Square
from polyglance.vision.tokens import VisualTokens

Views = Literal["one", "mirror", "ten"]


def margin(size: int, views: Views) -> int:
    """By how many pixels a picture must be larger than its views: 256 for crops of 224."""
    return size // 7 if views == "ten" else 0


def seen_from(square: Square, size: int, views: Views) -> list[Square]:
    """The views of a picture that was read into a square of ``size`` and the margin."""
    if views == "one":
        return [square]
    spare = margin(size, views)
    corners = [(0, 0), (0, spare), (spare, 0), (spare, spare), (spare // 2, spare // 2)]
    pixels = [
        square.pixels[top : top + size, left : left + size]
        for top, left in (corners if spare else corners[:1])
    ]
    return [replace(square, pixels=view) for one in pixels for view in (one, one[:, ::-1])]


def averaged(views: Sequence[VisualTokens]) -> VisualTokens:
    """The mean over the views of one picture; of one view, that view."""
    if len(views) == 1:
        return views[0]
    return replace(
        views[0],
        features=np.mean([view.features for view in views], axis=0),
        whole=np.mean([view.whole for view in views], axis=0),
    )
