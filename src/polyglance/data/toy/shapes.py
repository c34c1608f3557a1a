"""The six shapes as polygons around the origin, in a box from -1 to 1 with y downwards."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from polyglance.data.toy.semantics import SHAPES, Shape

Points = NDArray[np.float64]


def _circle() -> Points:
    angle = np.linspace(0, 2 * np.pi, 96, endpoint=False)
    return 0.92 * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _star() -> Points:
    angle = np.arange(10) * np.pi / 5
    radius = np.where(np.arange(10) % 2 == 0, 1.05, 0.5)
    return np.stack([radius * np.sin(angle), 0.1 - radius * np.cos(angle)], axis=1)


def _heart() -> Points:
    # The usual parametric heart curve.
    t = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([x, -y - 2.5], axis=1) / 16.2


def _polygon(points: Iterable[tuple[float, float]]) -> Points:
    return np.array(list(points), dtype=np.float64)


OUTLINES: dict[Shape, Points] = {
    "circle": _circle(),
    "square": _polygon([(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)]),
    "triangle": _polygon([(0, -0.87), (0.98, 0.83), (-0.98, 0.83)]),
    "star": _star(),
    "heart": _heart(),
    # Narrow, so that it is not mistaken for a rotated square.
    "diamond": _polygon([(0, -1), (0.68, 0), (0, 1), (-0.68, 0)]),
}


def rotate(points: Points, angle: float) -> Points:
    """Rotate points clockwise around the origin by ``angle`` radians."""
    cos, sin = np.cos(angle), np.sin(angle)
    rotated: Points = points @ np.array([[cos, sin], [-sin, cos]])
    return rotated


def _raster(points: Points) -> NDArray[np.bool_]:
    """Return which cells of a 64 x 64 grid over the box from -1.25 to 1.25 a shape covers."""
    mask = Image.new("1", (64, 64))
    ImageDraw.Draw(mask).polygon(((points + 1.25) / 2.5 * 64 - 0.5).ravel().tolist(), fill=1)
    return np.asarray(mask)


_RASTERS = {shape: _raster(OUTLINES[shape]) for shape in SHAPES}

INTERIOR_POINTS: dict[Shape, Points] = {
    shape: (np.argwhere(_RASTERS[shape][::3, ::3])[:, ::-1] * 3 + 0.5) / 64 * 2.5 - 1.25
    for shape in SHAPES
}
"""Points spread evenly over each shape."""


def contains_points(shape: Shape, points: Points) -> NDArray[np.bool_]:
    """Return which points lie inside the shape, accurate to a few hundredths."""
    cells = np.clip((points + 1.25) / 2.5 * 64, 0, 63).astype(np.int64)
    return _RASTERS[shape][cells[:, 1], cells[:, 0]]


def _largest_disc(points: Points) -> tuple[float, float]:
    """Return centre height and radius of the largest disc inside, centred on the vertical axis."""
    starts, sides = points, np.roll(points, -1, axis=0) - points
    best = (0.0, 0.0)
    for height in np.linspace(-0.5, 0.5, 101):
        offset = np.array([0.0, height]) - starts
        along = np.clip((offset * sides).sum(1) / (sides**2).sum(1), 0, 1)
        radius = float(np.hypot(*(offset - along[:, None] * sides).T).min())
        if radius > best[1]:
            best = (float(height), radius)
    return best


INSCRIBED_DISCS: dict[Shape, tuple[float, float]] = {s: _largest_disc(OUTLINES[s]) for s in SHAPES}
"""Centre height and radius of the largest disc inside each shape."""

CIRCUMRADII: dict[Shape, float] = {s: float(np.hypot(*OUTLINES[s].T).max()) for s in SHAPES}
"""Distance of each shape's farthest point from the origin."""
