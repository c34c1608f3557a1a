"""Checksums of the rows of a library, since SQLite has none of its own, nor have many servers.

Each row has a CRC-32 of all its columns, its ids included. In a file each table also has the
number of its rows and the sum of their checksums (`sqlite_totals`). So a changed row does not
match its own checksum, and a missing or additional one not those of its table. On a server a
vector has its checksum beside it, and its row of ``numbers`` one of the rest and of that.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

COLUMNS = {
    "items": (
        "id", "path", "kind", "size", "mtime_ns", "content", "taken", "width", "height",
        "seconds", "parts", "thumbnail",
    ),
    "vectors": ("id", "item", "start", "stop", "vector"),
    "thumbnails": ("item", "webp"),
    "details": (
        "item", "added", "latitude", "longitude", "camera", "place", "ocr_text", "extra",
    ),
    "bad": ("path", "size", "mtime_ns", "reason"),
    "places": ("role", "path"),
    "totals": ("name", "count", "sum", "last"),
}  # fmt: skip
"""The columns of each table that its column ``checksum`` is of, in this order."""
COUNTED = ("items", "vectors", "thumbnails", "details", "bad", "places")
"""The tables that have a row in ``totals``."""
KEYS = {"items": "id", "vectors": "id", "thumbnails": "item", "details": "item"}
"""The row numbers of tables that have some."""

_PATHS = {"items": 1, "bad": 0, "places": 1}
"""Where the path is in a row of `COLUMNS`."""
_pack_head = struct.Struct("<qqdd").pack


def vector_checksum(
    vector_id: int, item: int, start: float | None, stop: float | None, content: bytes
) -> int:
    """Return the checksum of a vector's row.

    Args:
        vector_id: Its id.
        item: The id of its item.
        start: Begin of its span, or None.
        stop: End of its span, or None.
        content: The vector's float16 bytes.

    Returns:
        The CRC-32.
    """
    head = _pack_head(
        vector_id, item, -1.0 if start is None else start, -1.0 if stop is None else stop
    )
    return zlib.crc32(content, zlib.crc32(head))


def number_checksum(
    vector_id: int, item: int, start: float | None, stop: float | None, checksum: int
) -> int:
    """Return the checksum of a row of ``numbers``, which a server has.

    Args:
        vector_id: The vector's id.
        item: The id of its item.
        start: Begin of its span, or None.
        stop: End of its span, or None.
        checksum: The CRC-32 of the vector's float16 bytes.

    Returns:
        The CRC-32.
    """
    return vector_checksum(vector_id, item, start, stop, checksum.to_bytes(8, "little"))


def row_checksum(table: str, row: tuple[Any, ...]) -> int:
    """Return the checksum of a row of `COLUMNS`."""
    if table == "vectors":
        return vector_checksum(*row)
    if table == "thumbnails":
        return zlib.crc32(row[1], zlib.crc32(_plain_bytes(table, row[:1])))
    return zlib.crc32(_plain_bytes(table, row))


def matches(table: str, row: tuple[Any, ...], checksum: object) -> bool:
    """Return whether a row as read, of any types, has this checksum.

    A row whose path has a null byte, which no file has, never does: a stranger wrote it.
    """
    try:
        place = _PATHS.get(table)
        if place is not None and "\0" in row[place]:
            return False
        return row_checksum(table, row) == checksum
    except (TypeError, ValueError, OverflowError, struct.error):
        return False


def _plain_bytes(table: str, values: tuple[Any, ...]) -> bytes:
    # Unlike repr, ascii is the same in every version of Python; it tells 1 from 1.0 and "1".
    return ascii((table, *values)).encode()
