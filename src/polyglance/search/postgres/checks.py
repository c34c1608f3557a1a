"""Find and delete damaged rows of a library on PostgreSQL."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import printable
from polyglance.search.row_checksums import COLUMNS, number_checksum
from polyglance.search.salvage import Salvage
from polyglance.search.serialization import FLOAT16, READ_BLOCK, not_unit
from polyglance.search.sqlite_check import (
    INCOMPLETE_ITEMS,
    MENDED,
    incomplete,
    read_rows,
    row_fault,
    row_name,
)
from polyglance.search.store import LibraryDamagedError

_ROW_TABLES = ("items", "thumbnails", "details", "bad", "places")


class Reader(Protocol):
    """What can be read from."""

    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""

    def _matrix(self, vectors: Any) -> NDArray[np.float32]:
        """Stack vectors: float32 ``[len(vectors), width]``."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged row."""

    table: str
    name: str
    """What it was about, for messages."""
    fault: str
    path: str | None = None
    """The file that is indexed again, if it is known."""
    item: int | None = None
    key: tuple[Any, ...] = ()
    """The row's primary key, of tables without items."""

    @property
    def sentence(self) -> str:
        """What is wrong, and how to mend it."""
        return f"{self.name}: {self.fault}: {MENDED}"


def find_damage(reader: Reader, library: str, width: int) -> Iterator[Damage]:
    """Yield each damaged row.

    Args:
        reader: Reads the library.
        library: Its name, for error messages.
        width: Numbers per vector.

    Yields:
        The rows; of an item without all its vectors, the item.
    """
    for path, parts, count in reader.fetch_all(INCOMPLETE_ITEMS):
        yield Damage("vectors", printable(path), incomplete(count, parts), path)
    for item, path in reader.fetch_all(
        "SELECT items.id, path FROM items LEFT JOIN thumbnails ON item = items.id"
        " WHERE thumbnail != 0 AND item IS NULL ORDER BY path"
    ):
        yield Damage("thumbnails", printable(path), "the thumbnail is missing", path, item)
    for table in _ROW_TABLES:
        for row, checksum in read_rows(reader, table, library):
            if fault := row_fault(table, row, checksum, width):
                yield _row_damage(reader, table, row, fault)
    yield from _damaged_vectors(reader, library)
    [[last, highest]] = reader.fetch_all(
        "SELECT last, (SELECT coalesce(max(id), 0) FROM numbers) FROM state"
    )
    if highest > last:
        yield Damage("state", library, "the last id that was given is lower than one in use")


def _row_damage(reader: Reader, table: str, row: tuple[Any, ...], fault: str) -> Damage:
    if table in ("thumbnails", "details"):
        found = reader.fetch_all("SELECT path FROM items WHERE id = ?", (row[0],))
        path = found[0][0] if found else None
        return Damage(table, printable(path or row_name(table, row)), fault, path, row[0])
    if table == "items":  # its path may be what is damaged
        return Damage(table, row_name(table, row), fault, None, row[0])
    return Damage(table, row_name(table, row), fault, key=row[: 2 if table == "places" else 1])


def _damaged_vectors(reader: Reader, library: str) -> Iterator[Damage]:
    last = (-1, -1)
    while rows := reader.fetch_all(
        "SELECT item, part, vector, vectors.checksum, path, numbers.id, start, stop,"
        " numbers.checksum FROM vectors LEFT JOIN numbers USING (item, part)"
        " LEFT JOIN items ON items.id = item"
        " WHERE (item, part) > (?, ?) ORDER BY item, part LIMIT ?",
        (*last, READ_BLOCK),
    ):
        vectors = reader._matrix([row[2] for row in rows])
        for row, vector, wrong in zip(rows, vectors, not_unit(vectors), strict=True):
            if fault := _vector_fault(row, vector, wrong=bool(wrong)):
                name = printable(row[4]) if row[4] else f"item {row[0]}, which does not exist"
                yield Damage("vectors", name, fault, row[4], row[0])
        if tuple(rows[-1][:2]) <= last:
            raise LibraryDamagedError(library, "the numbers of its vectors")
        last = tuple(rows[-1][:2])


def _vector_fault(row: Any, vector: NDArray[np.float32], *, wrong: bool) -> str | None:
    item, _, _, checksum, _, vector_id, start, stop, number = row
    if vector_id is None:
        return "a vector has no id"
    if zlib.crc32(vector.astype(FLOAT16).tobytes()) != checksum:
        return "a vector does not match its checksum"
    if number_checksum(vector_id, item, start, stop, checksum) != number:
        return "the id or the span of a vector does not match its checksum"
    return "a vector does not have length 1" if wrong else None


def drop(execute: Callable[..., Any], damage: Iterable[Damage]) -> None:
    """Delete damaged rows; what is lost with an item is all that is known of it."""
    for one in damage:
        if one.table in ("thumbnails", "details"):
            execute(f"DELETE FROM {one.table} WHERE item = %s", (one.item,))
        elif one.table == "state":
            execute("UPDATE state SET last = greatest(last, (SELECT max(id) FROM numbers))")
        elif one.table in ("bad", "places"):
            keys = COLUMNS[one.table][: len(one.key)]
            same = " AND ".join(f"{key} = %s" for key in keys)
            execute(f"DELETE FROM {one.table} WHERE {same}", one.key)
        elif one.item is not None:
            execute("DELETE FROM vectors WHERE item = %s", (one.item,))  # of no item, perhaps
            execute("DELETE FROM items WHERE id = %s", (one.item,))
        else:
            execute("DELETE FROM items WHERE path = %s", (one.path,))


def salvage(damage: Iterable[Damage], items: int, *, thumbnails: bool) -> Salvage:
    """Return what is left after `drop`.

    Args:
        damage: What was dropped.
        items: The items that are left.
        thumbnails: Whether the library has thumbnails.

    Returns:
        What is lost.
    """
    listed = list(damage)
    lost = {one.path for one in listed if one.table == "vectors" and one.path}
    small = {one.path for one in listed if one.table == "thumbnails" and one.path}
    complete = not any(one.table in ("items", "bad", "places") for one in listed)
    return Salvage(items, tuple(sorted(lost)), tuple(sorted(small - lost)), complete, thumbnails)
