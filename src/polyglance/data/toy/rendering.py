"""Render scenes as images and films as frames, and compute bounding boxes.

Shapes are filled polygons, drawn several times larger and averaged down, so that edges
are anti-aliased at any size.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from polyglance.data.toy.scenes import Background, Film, PlacedThing, Scene
from polyglance.data.toy.shapes import OUTLINES, rotate
from polyglance.errors import PolyglanceError

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]

SECONDS = 4
FRAMES_PER_SECOND = 8
_GRAIN = 4


def render(scene: Scene, size: int = 64) -> Pixels:
    """Render a scene; return uint8 pixels of shape (size, size, 3)."""
    canvas = _paint_background(scene.background, size)
    for placed in scene.things:
        _paint(canvas, placed)
    return np.asarray(canvas)


def render_film(film: Film, size: int = 64, frames: int = SECONDS * FRAMES_PER_SECOND) -> Pixels:
    """Render frames evenly spaced in time; return uint8 pixels of shape (frames, size, size, 3)."""
    if frames < 1:
        raise PolyglanceError("a clip needs at least one frame")
    without_mover = _paint_background(film.background, size)
    _paint(without_mover, film.still)
    pixels = np.empty((frames, size, size, 3), np.uint8)
    for number, progress in enumerate(np.linspace(0, 1, frames)):
        canvas = without_mover.copy()
        dx, dy = film.travel
        _paint(
            canvas,
            replace(film.mover, x=film.mover.x + progress * dx, y=film.mover.y + progress * dy),
        )
        pixels[number] = np.asarray(canvas)
    return pixels


def bounding_box(placed: PlacedThing) -> Box:
    """Return the tight box around a thing (left, top, right, bottom), occluded parts included."""
    points = _outline(placed)
    left, top = points.min(axis=0)
    right, bottom = points.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def _outline(placed: PlacedThing) -> NDArray[np.float64]:
    points = rotate(OUTLINES[placed.thing.shape], placed.angle) * placed.radius
    points += np.array([placed.x, placed.y])
    return points


def _paint(canvas: Image.Image, placed: PlacedThing) -> None:
    size = canvas.width
    scale = 4 if size <= 128 else 2
    points = _outline(placed) * size
    left, top = np.floor(points.min(axis=0)).astype(int)
    right, bottom = np.ceil(points.max(axis=0)).astype(int)
    mask = Image.new("L", ((right - left) * scale, (bottom - top) * scale))
    # Pillow's coordinates refer to pixel centres.
    corners = (points - (left, top)) * scale - 0.5
    ImageDraw.Draw(mask).polygon(corners.ravel().tolist(), fill=255)
    canvas.paste(placed.rgb, (int(left), int(top)), mask.reduce(scale))


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
