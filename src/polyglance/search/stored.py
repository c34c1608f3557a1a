"""How any store writes what a library holds: the numbers of a vector, the columns of an item."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.search.store import Ids, Item, Stamp

BLOCK = 4096
"""Rows that are read at a time."""
HALF = np.dtype("<f2")
"""Vectors are rounded to float16; of these bytes their checksums are."""
UNIT = 0.01
"""By how much the length of a vector may differ from 1."""
ITEM = "path, kind, size, mtime_ns, content, taken, width, height, seconds"
"""The columns of an item, as `columns_of` gives them and `item_of` takes them."""


def columns_of(item: Item) -> tuple[Any, ...]:
    """An item as a row."""
    known = (item.content, item.taken, item.width, item.height, item.seconds)
    return (item.path, item.kind, *plain(item.stamp), *known)


def item_of(row: Sequence[Any]) -> Item:
    """An item from a row."""
    path, kind, size, mtime_ns, *rest = row
    return Item(path, kind, Stamp(size, mtime_ns), *rest)


def plain(stamp: Stamp) -> tuple[int, int]:
    """A stamp as two columns."""
    return stamp.size, stamp.mtime_ns


def numbers(rows: Sequence[Any]) -> Ids:
    """The first column."""
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def halved(vector: NDArray[np.floating]) -> tuple[bytes, int]:
    """The bytes of a vector and their checksum."""
    content = vector.astype(HALF).tobytes()
    return content, zlib.crc32(content)


def fault(content: bytes, checksum: int, width: int) -> str | None:
    """What is wrong with the bytes of a vector."""
    if len(content) != width * HALF.itemsize or zlib.crc32(content) != checksum:
        return "a vector is not as it was written"
    if not abs(np.linalg.norm(np.frombuffer(content, HALF).astype(np.float32)) - 1) < UNIT:
        return "a vector is not of length 1"
    return None
