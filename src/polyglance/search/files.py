"""Properties of picture files: content hash, size, date; thumbnails; and whether they changed.

EXIF gives the local time at which a picture was taken, mostly without a time zone. So all
dates are local times; a file without one gets its modification time in this machine's zone.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from polyglance.errors import error_reason, printable
from polyglance.search.store import FileSignature, Store

if TYPE_CHECKING:
    from PIL.Image import Exif, Image

THUMBNAIL_SIZE = 256
"""Pixels of a thumbnail's longer side."""

_CHUNK = 1 << 20
_WITH_EXIF = ("AVIF", "JPEG", "MPO", "PNG", "TIFF", "WEBP")
_EXIF_IFD, _DATE_TIME_ORIGINAL, _DATE_TIME, _ORIENTATION = 0x8769, 0x9003, 0x0132, 0x0112


def content_hash(path: str) -> str:
    """Return a hash of a file's bytes, which identifies it after a move."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def size_and_date(path: str, image: Image, signature: FileSignature) -> tuple[int, int, str]:
    """Read the size and date of a picture from its header.

    A broken header does not lose the picture: then the decoded size and the modification time
    are returned.

    Args:
        path: The file.
        image: What was decoded from it, possibly at a smaller size.
        signature: The file's signature, for its modification time.

    Returns:
        Width, height and date.
    """
    from PIL import Image as Opener

    try:
        formats = [name for name in _WITH_EXIF if name in Opener.OPEN]
        with Opener.open(path, formats=formats) as opened:
            width, height = opened.size
            exif = opened.getexif()
            if exif.get(_ORIENTATION, 1) >= 5:  # rotated by 90 degrees
                width, height = height, width
            return width, height, _date_taken(exif) or modified_date(signature)
    except Exception:  # decoders raise anything; the picture itself could be read
        return image.width, image.height, modified_date(signature)


def modified_date(signature: FileSignature) -> str:
    """Return when a file was last modified, in the format of stored dates."""
    try:
        return datetime.fromtimestamp(signature.mtime_ns // 10**9).isoformat()
    except (OverflowError, OSError, ValueError):
        return "1970-01-01T00:00:00"


def make_thumbnail(image: Image) -> bytes:
    """Return a small WebP of an image."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    small.save(stream, "WEBP", quality=80)
    return stream.getvalue()


def downscale(image: Image, min_side: int) -> Image:
    """Reduce a large image by an integer factor, its shorter side staying ``min_side`` or more.

    Many images wait for the encoder at a time; at full size they would fill the memory.
    """
    factor = min(image.size) // min_side
    return image.reduce(factor) if factor > 1 else image


def changed_files(store: Store) -> Iterator[str]:
    """Yield a sentence for each item whose file is missing, unreadable or changed.

    Every file is read in full.
    """
    for entry in store.entries():
        item = entry.item
        try:
            same_size = os.stat(item.path).st_size == item.signature.size
            if not same_size or content_hash(item.path) != item.content_hash:
                yield f"{printable(item.path)}: the file changed after it was indexed: index again"
        except OSError as error:
            yield (
                f"{printable(item.path)}: the file cannot be read ({error_reason(error)}):"
                " index again"
            )


def _date_taken(exif: Exif) -> str | None:
    for text in (exif.get_ifd(_EXIF_IFD).get(_DATE_TIME_ORIGINAL), exif.get(_DATE_TIME)):
        try:
            return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").isoformat()
        except ValueError:
            continue
    return None
