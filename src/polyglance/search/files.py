"""Read files: content and hash at once; dates and thumbnails.

EXIF gives the local time at which a picture was taken, mostly without a time zone. So all
dates are local times; a file without one gets its modification time in this machine's zone.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from typing import TYPE_CHECKING, BinaryIO

from polyglance.search.store import FileSignature
from polyglance.vision.limited_decoding import FileStamp

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL_SIZE = 256
"""Pixels of a thumbnail's longer side."""

_MIN_REDUCED = 0.9
"""Share of a thumbnail's size that one may have that is reduced by an integer."""

CHANGING = "the file changes while it is read"

_CHUNK = 1 << 20
_ATTEMPTS = 3
_BINARY = getattr(os, "O_BINARY", 0)
"""Windows would translate line ends."""


def content_hash(path: str) -> str:
    """Return a hash of a file's bytes, which identifies it after a move."""
    return read_content(path, keep=lambda size: False).digest


@dataclass(frozen=True, slots=True, eq=False)
class FileContent:
    """The bytes of a file, their hash and the stamp of the file that had them."""

    digest: str
    stamp: FileStamp
    data: bytes | None
    """The bytes, or None if they are not kept."""

    @property
    def signature(self) -> FileSignature:
        """The signature of the file that had these bytes."""
        return FileSignature(self.stamp.size, self.stamp.mtime_ns)


def read_content(path: str, keep: Callable[[int], bool] = lambda size: True) -> FileContent:
    """Read and hash a file once, and raise an OSError if it changes meanwhile.

    Args:
        path: The file.
        keep: Given the file's size, whether to return its bytes.
    """
    for _ in range(_ATTEMPTS):
        # Without waiting for a writer, where a named pipe has taken the file's place.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a file")
            stamp = FileStamp.of(status)
            data = file.read() if keep(stamp.size) else None
            if data is not None and len(data) != stamp.size:
                continue
            digest = hash_bytes(data) if data is not None else _hash(file)
            if FileStamp.of(os.fstat(descriptor)) == stamp:
                return FileContent(digest, stamp, data)
    raise OSError(errno.EBUSY, CHANGING)


def hash_bytes(data: bytes) -> str:
    """Return the hash of bytes as `content_hash` does."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _hash(file: BinaryIO | FileIO) -> str:
    digest = hashlib.blake2b(digest_size=16)
    while block := file.read(_CHUNK):
        digest.update(block)
    return digest.hexdigest()


def modified_date(signature: FileSignature) -> str:
    """Return when a file was last modified, in the format of stored dates."""
    try:
        return datetime.fromtimestamp(signature.mtime_ns // 10**9).isoformat()
    except (OverflowError, OSError, ValueError):
        return "1970-01-01T00:00:00"


def make_thumbnail(image: Image) -> bytes:
    """Return a small WebP of an image."""
    longer = max(image.size)
    factor = -(-longer // THUMBNAIL_SIZE)
    if factor > 1 and longer // factor >= _MIN_REDUCED * THUMBNAIL_SIZE:
        small = image.reduce(factor)  # a tenth of the time, where it comes out nearly as large
    else:
        small = image.copy()
        small.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    small.save(stream, "WEBP", quality=80, method=1)  # a third of the time, a tenth larger
    return stream.getvalue()
