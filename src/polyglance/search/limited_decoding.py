"""Decode a picture for a library in a process with limits: pixels, metadata and thumbnail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from polyglance.search.files import make_thumbnail
from polyglance.utils.worker_pool import Content
from polyglance.utils.worker_process import Reply
from polyglance.vision.exif import Metadata
from polyglance.vision.limited_decoding import (
    DecodeLimits,
    DecodingError,
    read_limited_file,
    run_limited,
)
from polyglance.vision.pictures import Resize, decode_picture, downscale, to_square

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_THUMBNAIL_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class LibraryPicture:
    """A picture as an encoder and a library take it."""

    image: Image
    """Upright RGB, downscaled."""
    width: int
    height: int
    """Size of the upright picture in the file."""
    metadata: Metadata
    """When, where and with what it was taken, if the file says so."""
    thumbnail: bytes | None
    """A small WebP."""


def decode_for_library(
    data: bytes,
    path: str,
    limits: DecodeLimits,
    *,
    min_side: int,
    square: tuple[int, Resize] | None = None,
    thumbnail: bool = False,
) -> LibraryPicture:
    """Decode the content of a picture file; raise a `DecodingError` if it cannot be.

    Args:
        data: The content.
        path: The file, which errors name.
        limits: What decoding may take.
        min_side: A large picture is decoded smaller, down to so many pixels a side, and
            downscaled to one and a half times that (`downscale`), unless a square is asked for.
        square: Size and shape of the encoder's input, if the encoder would make it by `to_square`
            itself: fewer pixels come back.
        thumbnail: Also make a thumbnail.
    """
    from PIL import Image

    def convert(header: dict[str, Any], content: Content) -> LibraryPicture:
        size = (header["width"], header["height"])
        count = 3 * size[0] * size[1]
        if count > len(content):
            raise DecodingError(f"{path}: the decoder gave another number of pixels than it said")
        pixels = memoryview(content)[:count]
        return LibraryPicture(
            Image.frombytes("RGB", size, pixels),
            header["full_width"],
            header["full_height"],
            Metadata(**header["metadata"]),
            bytes(content[count:]) if thumbnail else None,
        )

    return run_limited(
        f"{__name__}:decode_task",
        path,
        {"min_side": min_side, "square": square, "thumbnail": thumbnail},
        data,
        limits,
        max_reply=4 * limits.max_pixels + MAX_THUMBNAIL_BYTES,
        convert=convert,
    )


def read_limited_picture(path: str, limits: DecodeLimits, *, min_side: int) -> LibraryPicture:
    """Read a picture file for display; see `decode_for_library`."""
    data = read_limited_file(path, limits)
    return decode_for_library(data, path, limits, min_side=min_side)


def decode_task(settings: dict[str, Any], data: bytes) -> Iterator[Reply]:
    """Decode a picture in the process with limits."""
    min_side = settings["min_side"]
    decoded = decode_picture(
        data, settings["path"], min_side=min_side, max_pixels=settings["max_pixels"]
    )
    thumbnail = make_thumbnail(decoded.image) if settings["thumbnail"] else b""
    if settings["square"] is None:
        image = downscale(decoded.image, 3 * min_side // 2)
        width, height = image.size
        pixels = image.tobytes()
    else:
        width = height = settings["square"][0]
        pixels = to_square(decoded.image, *settings["square"]).pixels.tobytes()
    header = {
        "width": width,
        "height": height,
        "full_width": decoded.width,
        "full_height": decoded.height,
        "metadata": asdict(decoded.metadata),
    }
    yield header, pixels + thumbnail
