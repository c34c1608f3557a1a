"""Convert items, vectors and model information to and from database values, for every store."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, printable
from polyglance.search.store import FORMAT, Details, FileSignature, Ids, Item, ModelInfo

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
CHECKSUM = "checksum"
"""The name of the row of ``manifest`` that has the checksum of the others, in a file."""


def item_to_row(item: Item) -> tuple[Any, ...]:
    """Convert an item to a row of `ITEM_FIELDS`."""
    # Plain numbers, as they will be read again: the checksum of a row depends on their types.
    seconds = None if item.seconds is None or math.isnan(item.seconds) else float(item.seconds)
    rest = (item.content_hash, item.taken, int(item.width), int(item.height), seconds)
    return (item.path, item.kind, *map(int, item.signature), *rest)


def item_from_row(row: Sequence[Any]) -> Item:
    """Convert a row of `ITEM_FIELDS` to an item."""
    path, kind, size, mtime_ns, *rest = row
    return Item(path, kind, FileSignature(size, mtime_ns), *rest)


def details_to_row(details: Details, added: str | None) -> tuple[Any, ...]:
    """Convert details to a row of the columns after ``item``; texts are made storable."""
    texts = (details.camera, details.place, details.ocr_text, details.extra)
    degrees = (details.latitude, details.longitude)
    # Metadata of a file may hold anything; a position is one of two finite numbers.
    located = all(value is not None and math.isfinite(value) for value in degrees)
    position = [float(value) if located and value is not None else None for value in degrees]
    return (added, *position, *(None if text is None else _storable(text) for text in texts))


def details_from_row(row: Sequence[Any]) -> Details:
    """Convert a row of the columns after ``item`` to details."""
    return Details(*row)


def details_to_fields(details: Details | None) -> dict[str, Any]:
    """Return what a file says about itself, as shards hold it."""
    latitude, longitude, camera = details_to_row(details or Details(), None)[1:4]
    return {"latitude": latitude, "longitude": longitude, "camera": camera}


def details_from_fields(fields: Mapping[str, Any]) -> Details:
    """Return details from `details_to_fields`; shards of earlier versions lack the fields."""
    latitude, longitude, camera = map(fields.get, ("latitude", "longitude", "camera"))
    return Details(
        latitude=None if latitude is None else float(latitude),
        longitude=None if longitude is None else float(longitude),
        camera=None if camera is None else str(camera),
    )


def utc_now() -> str:
    """Return the time, as `Details.added` is stored."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _storable(text: str) -> str:
    """Return a text without what a database refuses: null characters and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def ids_from_rows(rows: Sequence[Any]) -> Ids:
    """Return the first column of rows."""
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def vector_to_bytes(vector: NDArray[np.floating]) -> tuple[bytes, int]:
    """Return a vector's float16 bytes and their CRC-32."""
    content = vector.astype(FLOAT16).tobytes()
    return content, zlib.crc32(content)


def not_unit(vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which vectors of ``[n, width]`` are not finite or do not have length 1."""
    values = vectors.astype(np.float32, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        wrong: NDArray[np.bool_] = ~(np.abs(lengths - 1) < NORM_TOLERANCE)
    return wrong


def check_vectors(path: str, vectors: NDArray[np.floating]) -> None:
    """Refuse to store vectors that no search could compare."""
    if not_unit(vectors).any():
        raise DataError(
            f"{printable(path)}: the model returned a vector that does not have length 1: try"
            " another model"
        )


def model_info_to_rows(info: ModelInfo) -> list[tuple[str, str]]:
    """Return names and JSON values for the table ``manifest``."""
    return [(name, json.dumps(value)) for name, value in asdict(info).items()]


def manifest_checksum(rows: Sequence[Any]) -> int:
    """Return the checksum of all rows of ``manifest``, in any order."""
    return zlib.crc32(ascii(sorted((str(name), str(text)) for name, text in rows)).encode())


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
        values = {name: json.loads(text) for name, text in rows if name != CHECKSUM}
        check_format(values["format"], library)
        info = ModelInfo(**values)
        texts = (info.model, info.source, info.fingerprint, info.library)
        if not all(isinstance(text, str) for text in texts) or not 0 < info.width < 1 << 20:
            raise ValueError
        return info
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{library} does not say which model made it: {remedy}") from error


def check_format(version: int, library: str) -> None:
    """Refuse a library of a later version."""
    if version > FORMAT:
        raise DataError(
            f"{library} was made by a newer version of Polyglance: pip install --upgrade polyglance"
        )
