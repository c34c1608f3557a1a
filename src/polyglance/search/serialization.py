"""Convert items, vectors and model information to and from database values, for every store."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError
from polyglance.search.store import FORMAT, FileSignature, Ids, Item, ModelInfo

READ_BLOCK = 4096
"""Rows read at a time."""
FLOAT16 = np.dtype("<f2")
"""Vectors are rounded to float16; checksums are of these bytes."""
NORM_TOLERANCE = 0.01
"""How far the norm of a stored vector may be from 1."""
ITEM_FIELDS = (
    "path", "kind", "size", "mtime_ns", "content", "taken", "width", "height", "seconds",
)  # fmt: skip
"""The columns of an item, in the order of `item_to_row` and `item_from_row`."""
ITEM_COLUMNS = ", ".join(ITEM_FIELDS)


def item_to_row(item: Item) -> tuple[Any, ...]:
    """Convert an item to a row of `ITEM_FIELDS`."""
    rest = (item.content_hash, item.taken, item.width, item.height, item.seconds)
    return (item.path, item.kind, *item.signature, *rest)


def item_from_row(row: Sequence[Any]) -> Item:
    """Convert a row of `ITEM_FIELDS` to an item."""
    path, kind, size, mtime_ns, *rest = row
    return Item(path, kind, FileSignature(size, mtime_ns), *rest)


def ids_from_rows(rows: Sequence[Any]) -> Ids:
    """Return the first column of rows."""
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def vector_to_bytes(vector: NDArray[np.floating]) -> tuple[bytes, int]:
    """Return a vector's float16 bytes and their CRC-32."""
    content = vector.astype(FLOAT16).tobytes()
    return content, zlib.crc32(content)


def vector_fault(content: bytes, checksum: int, width: int) -> str | None:
    """Return what is wrong with the bytes of a vector, or None."""
    if len(content) != width * FLOAT16.itemsize or zlib.crc32(content) != checksum:
        return "a vector does not match its checksum"
    norm = np.linalg.norm(np.frombuffer(content, FLOAT16).astype(np.float32))
    if not abs(norm - 1) < NORM_TOLERANCE:
        return "a vector does not have length 1"
    return None


def model_info_to_rows(info: ModelInfo) -> list[tuple[str, str]]:
    """Return names and JSON values for the table ``manifest``."""
    return [(name, json.dumps(value)) for name, value in asdict(info).items()]


def model_info_from_rows(rows: Sequence[Any], library: str, *, remedy: str) -> ModelInfo:
    """Parse the table ``manifest``.

    Args:
        rows: Names and JSON values.
        library: The library's name, for error messages.
        remedy: What to do if the table is incomplete.

    Returns:
        The model that made the library's vectors.
    """
    try:
        values = {name: json.loads(text) for name, text in rows}
        if values["format"] <= FORMAT:
            return ModelInfo(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{library} does not say which model made it: {remedy}") from error
    raise DataError(
        f"{library} was made by a newer version of Polyglance: pip install --upgrade polyglance"
    )
