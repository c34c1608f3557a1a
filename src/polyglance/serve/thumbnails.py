"""Thumbnails, and pictures in formats that browsers show."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from polyglance.errors import DataError, MissingExtraError
from polyglance.search.files import THUMBNAIL_SIZE
from polyglance.search.query import MediaRef
from polyglance.search.render.images import read_image
from polyglance.serve.catalog import LibraryCatalog
from polyglance.serve.errors import HTTPProblem

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE = 2560
"""Longer side in pixels of a picture converted because browsers cannot show its file."""
CACHE_BYTES = 64_000_000
"""Size of the thumbnail cache in memory."""

IMAGE_TYPES = {
    ".avif": "image/avif", ".bmp": "image/bmp", ".gif": "image/gif", ".jfif": "image/jpeg",
    ".jpe": "image/jpeg", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".png": "image/png",
    ".webp": "image/webp",
}  # fmt: skip
"""Media types of the image files that browsers show."""
VIDEO_TYPES = {
    ".3gp": "video/3gpp", ".m4v": "video/mp4", ".mkv": "video/x-matroska",
    ".mov": "video/quicktime", ".mp4": "video/mp4", ".ogv": "video/ogg", ".webm": "video/webm",
}  # fmt: skip
"""Media types of the video files that browsers may play."""


def suffix(piece: MediaRef) -> str:
    """Return a file's suffix in lower case."""
    return piece.path.suffix.lower()


class Thumbnails:
    """WebP thumbnails from the library, or made on demand and cached in memory (LRU)."""

    def __init__(self, catalog: LibraryCatalog, max_bytes: int = CACHE_BYTES) -> None:
        self._catalog, self._max_bytes = catalog, max_bytes
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()

    def get(self, item: int, size: int) -> bytes:
        """Return the thumbnail of an item, at most ``size`` pixels a side."""
        piece = self._catalog.get(item)
        stored = (
            self._catalog.thumbnail(piece) if size <= THUMBNAIL_SIZE and not piece.span else None
        )
        if stored is not None:
            return stored
        with self._lock:
            if (webp := self._cache.get((item, size))) is not None:
                self._cache.move_to_end((item, size))
                return webp
        webp = encode_webp(self._catalog, piece, size)
        with self._lock:
            if (item, size) not in self._cache:
                self._cache[item, size] = webp
                self._bytes += len(webp)
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._cache.popitem(last=False)[1])
        return webp


def encode_webp(catalog: LibraryCatalog, piece: MediaRef, size: int) -> bytes:
    """Return a picture, or a clip's middle frame, as WebP of at most ``size`` pixels a side."""
    picture, out = open_picture(catalog, piece, size), io.BytesIO()
    picture.thumbnail((size, size))
    picture.save(out, "WEBP", quality=80, method=2)  # twice as fast as the default, as small
    return out.getvalue()


def open_picture(catalog: LibraryCatalog, piece: MediaRef, size: int) -> Image:
    """Decode a picture or a clip's middle frame, at reduced size but not below ``size``."""
    file, _ = catalog.open_file(piece)
    file.close()
    try:
        return read_image(str(piece.path), piece.kind, piece.span, min_side=size)
    except (DataError, MissingExtraError) as error:
        raise HTTPProblem(404, "The file can no longer be read as a picture.") from error
