"""Pixels: scenes as pictures, films as frames, and the boxes around what was drawn.

Shapes are filled polygons, drawn several times larger and averaged down, so
edges are smooth at any size.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from polyglance.data.toy.scenes import Background, Film, Placed, Scene
from polyglance.data.toy.shapes import OUTLINES, turn
from polyglance.errors import PolyglanceError

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]

SECONDS = 4
FRAMES_PER_SECOND = 8
_GRAIN = 4


def render(scene: Scene, size: int = 64) -> Pixels:
    """The scene as ``size`` x ``size`` x 3 pixels."""
    canvas = _paint_background(scene.background, size)
    for placed in scene.things:
        _paint(canvas, placed)
    return np.asarray(canvas)


def render_film(film: Film, size: int = 64, frames: int = SECONDS * FRAMES_PER_SECOND) -> Pixels:
    """The film as ``frames`` x ``size`` x ``size`` x 3 pixels, evenly spaced in time."""
    if frames < 1:
        raise PolyglanceError("a clip needs at least one frame")
    empty = _paint_background(film.background, size)
    _paint(empty, film.still)
    drawn = np.empty((frames, size, size, 3), np.uint8)
    for number, share in enumerate(np.linspace(0, 1, frames)):
        canvas = empty.copy()
        dx, dy = film.travel
        _paint(
            canvas, replace(film.mover, x=film.mover.x + share * dx, y=film.mover.y + share * dy)
        )
        drawn[number] = np.asarray(canvas)
    return drawn


def box(placed: Placed) -> Box:
    """The tight box around a thing (left, top, right, bottom), hidden parts included."""
    points = _outline(placed)
    left, top = points.min(axis=0)
    right, bottom = points.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def _outline(placed: Placed) -> NDArray[np.float64]:
    points = turn(OUTLINES[placed.thing.shape], placed.angle) * placed.radius
    points += np.array([placed.x, placed.y])
    return points


def _paint(canvas: Image.Image, placed: Placed) -> None:
    size = canvas.width
    finer = 4 if size <= 128 else 2
    points = _outline(placed) * size
    left, top = np.floor(points.min(axis=0)).astype(int)
    right, bottom = np.ceil(points.max(axis=0)).astype(int)
    mask = Image.new("L", ((right - left) * finer, (bottom - top) * finer))
    # Pillow counts from the centres of pixels.
    corners = (points - (left, top)) * finer - 0.5
    ImageDraw.Draw(mask).polygon(corners.ravel().tolist(), fill=255)
    canvas.paste(placed.rgb, (int(left), int(top)), mask.reduce(finer))


def _paint_background(background: Background, size: int) -> Image.Image:
    if size < 8:
        raise PolyglanceError(f"a picture needs at least 8 pixels a side, not {size}")
    across, down = background.slope
    ramp = _ramp(size)
    grain = np.random.default_rng(background.grain).integers(
        -_GRAIN, _GRAIN + 1, (size, size), dtype=np.int8
    )
    shade = across * ramp[None, :] + down * ramp[:, None] + grain
    pixels = shade[:, :, None] + np.array(background.rgb, np.float32)
    return Image.fromarray(pixels.astype(np.uint8))


@lru_cache(maxsize=16)
def _ramp(size: int) -> NDArray[np.float32]:
    return np.linspace(-1, 1, size, dtype=np.float32)
