"""Pictures of items, to be shown: a thumbnail from the library, or else from the file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from polyglance.search.clips import frame_of
from polyglance.search.store import Kind, Span
from polyglance.vision.pictures import read_picture

if TYPE_CHECKING:
    from PIL.Image import Image


def picture_of(path: str, kind: Kind, span: Span | None = None, *, at_least: int = 256) -> Image:
    """A picture, or what a clip shows in the middle of a span; a `DataError` where it cannot.

    ``at_least`` so many pixels a side are left of a large one.
    """
    return frame_of(path, span) if kind == "clip" else read_picture(path, at_least=at_least)


def from_webp(thumbnail: bytes) -> Image:
    """A thumbnail as the library keeps it."""
    from PIL import Image

    with Image.open(io.BytesIO(thumbnail), formats=["WEBP"]) as opened:
        return opened.convert("RGB")
