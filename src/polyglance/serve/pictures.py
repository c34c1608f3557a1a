"""Pictures of items to look at: small ones, and files in kinds that browsers show."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from polyglance.errors import DataError, MissingExtra
from polyglance.search.files import THUMBNAIL
from polyglance.search.query import Piece
from polyglance.search.showing.pictures import picture_of
from polyglance.serve.problems import Refused
from polyglance.serve.shelf import Shelf

if TYPE_CHECKING:
    from PIL.Image import Image

SCREEN = 2560
"""Of the longer side of a picture whose own file no browser shows."""
KEPT = 64_000_000
"""Bytes of thumbnails in memory."""

SHOWN = {
    ".avif": "image/avif", ".bmp": "image/bmp", ".gif": "image/gif", ".jfif": "image/jpeg",
    ".jpe": "image/jpeg", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".png": "image/png",
    ".webp": "image/webp",
}  # fmt: skip
"""Files that browsers show as they are."""
PLAYED = {
    ".3gp": "video/3gpp", ".m4v": "video/mp4", ".mkv": "video/x-matroska",
    ".mov": "video/quicktime", ".mp4": "video/mp4", ".ogv": "video/ogg", ".webm": "video/webm",
}  # fmt: skip
"""Files that browsers may play; the others are given out as bytes."""


def suffix(piece: Piece) -> str:
    """By which the kind of a file is told."""
    return piece.path.suffix.lower()


class Thumbnails:
    """Small pictures as WebP; those that had to be made are kept for a while."""

    def __init__(self, shelf: Shelf, kept: int = KEPT) -> None:
        self._shelf, self._most = shelf, kept
        self._made: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()

    def get(self, number: int, size: int) -> bytes:
        """What goes by a number, ``size`` pixels long or less."""
        piece = self._shelf.found(number)
        stored = self._shelf.thumbnail(piece) if size <= THUMBNAIL and not piece.span else None
        if stored is not None:
            return stored
        with self._lock:
            if (made := self._made.get((number, size))) is not None:
                self._made.move_to_end((number, size))
                return made
        made = as_webp(self._shelf, piece, size)
        with self._lock:
            if (number, size) not in self._made:
                self._made[number, size] = made
                self._bytes += len(made)
            while self._bytes > self._most:
                self._bytes -= len(self._made.popitem(last=False)[1])
        return made


def as_webp(shelf: Shelf, piece: Piece, size: int) -> bytes:
    """A picture, or what a clip shows in the middle of its span, ``size`` pixels long or less."""
    picture, out = opened(shelf, piece, size), io.BytesIO()
    picture.thumbnail((size, size))
    picture.save(out, "WEBP", quality=80, method=2)  # twice as quick as the default, as small
    return out.getvalue()


def opened(shelf: Shelf, piece: Piece, size: int) -> Image:
    """The same as it is, or smaller, but not below ``size`` a side."""
    file, _ = shelf.open(piece)
    file.close()
    try:
        return picture_of(str(piece.path), piece.kind, piece.span, at_least=size)
    except (DataError, MissingExtra) as error:
        raise Refused(404, "The file cannot be read as a picture any more.") from error
