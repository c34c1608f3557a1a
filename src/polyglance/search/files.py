"""What a picture's file says beside what it shows: its content's hash, its size, when it was taken.

EXIF tells the time of the place where a picture was taken, and mostly not which zone
that is. So all dates are kept as such a time; of a file without one it is when the file
was last written, here.
"""

from __future__ import annotations

import hashlib
import io
from datetime import datetime
from typing import TYPE_CHECKING

from polyglance.search.store import Stamp

if TYPE_CHECKING:
    from PIL.Image import Exif, Image

THUMBNAIL = 256
"""Pixels of a thumbnail's longer side."""

_CHUNK = 1 << 20
_WITH_EXIF = ("AVIF", "JPEG", "MPO", "PNG", "TIFF", "WEBP")
_EXIF_BLOCK, _TAKEN, _WRITTEN = 0x8769, 0x9003, 0x0132


def content_hash(path: str) -> str:
    """By which a file is known again wherever it lies."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def size_and_date(path: str, picture: Image, stamp: Stamp) -> tuple[int, int, str]:
    """Width, height and date of a picture's file, of which ``picture`` was decoded, perhaps small.

    A mangled header is no reason to lose a picture: then it is what was decoded, and
    when the file was written.
    """
    from PIL import Image as Opener

    try:
        formats = [name for name in _WITH_EXIF if name in Opener.OPEN]
        with Opener.open(path, formats=formats) as opened:
            width, height = opened.size
            exif = opened.getexif()
            if exif.get(0x0112, 1) >= 5:  # it lies on its side
                width, height = height, width
            return width, height, _taken(exif) or written(stamp)
    except Exception:  # decoders raise anything; the picture itself could be read
        return picture.width, picture.height, written(stamp)


def written(stamp: Stamp) -> str:
    """When a file was last written, as dates are kept."""
    try:
        return datetime.fromtimestamp(stamp.mtime_ns // 10**9).isoformat()
    except (OverflowError, OSError, ValueError):
        return "1970-01-01T00:00:00"


def thumbnail(picture: Image) -> bytes:
    """A picture as a small WebP."""
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    stream = io.BytesIO()
    small.save(stream, "WEBP", quality=80)
    return stream.getvalue()


def shrunk(picture: Image, least: int) -> Image:
    """A large picture at a half, a third ... of its size, the shorter side still ``least`` long.

    Pictures wait for the encoder, many at a time: those of a good camera would fill the memory.
    """
    factor = min(picture.size) // least
    return picture.reduce(factor) if factor > 1 else picture


def _taken(exif: Exif) -> str | None:
    for text in (exif.get_ifd(_EXIF_BLOCK).get(_TAKEN), exif.get(_WRITTEN)):
        try:
            return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").isoformat()
        except ValueError:
            continue
    return None
