"""Read the image of an item for display: from its file, or from its stored thumbnail."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.search.clips import middle_frame
from polyglance.search.limited_decoding import read_limited_picture
from polyglance.search.store import Kind, Span
from polyglance.vision.heif import HEIF_SUFFIXES
from polyglance.vision.limited_decoding import DecodeLimits
from polyglance.vision.pictures import read_picture
from polyglance.vision.raw import RAW_SUFFIXES

if TYPE_CHECKING:
    from PIL.Image import Image


def read_image(path: str, kind: Kind, span: Span | None = None, *, min_side: int = 256) -> Image:
    """Read a picture, or the middle frame of a clip's span; raise `DataError` if it cannot be.

    Args:
        path: The file.
        kind: Whether it is a picture or a clip.
        span: Start and end in a clip, in seconds; None for its first frame.
        min_side: A large picture may be decoded smaller, down to so many pixels a side.
    """
    if kind == "clip":
        return middle_frame(path, span)
    if Path(path).suffix.lower() in HEIF_SUFFIXES | RAW_SUFFIXES:
        # Large libraries in C++ that a server should not run in its own process.
        return read_limited_picture(path, DecodeLimits(), min_side=min_side).image
    return read_picture(path, min_side=min_side)


def decode_thumbnail(thumbnail: bytes) -> Image:
    """Decode a stored thumbnail."""
    from PIL import Image

    with Image.open(io.BytesIO(thumbnail), formats=["WEBP"]) as opened:
        return opened.convert("RGB")
