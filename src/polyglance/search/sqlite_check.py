"""Find damage in a library's file: in its pages, its rows, and its tables as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from polyglance.errors import DataError, printable
from polyglance.search.row_checksums import COLUMNS, COUNTED, KEYS, matches
from polyglance.search.serialization import FLOAT16, READ_BLOCK, not_unit
from polyglance.search.sqlite_totals import Total, read_totals
from polyglance.search.store import LibraryDamagedError

CHECK_LIMIT = 200_000
"""Up to this many items all are checked once before the second search with a filter, or indexing.

100,000 take 0.5 s of one core, and 1.4 s before indexing. Beyond that only the rows that are
read are verified; `find_damage` verifies all, however many.
"""
INCOMPLETE_ITEMS = (
    "SELECT path, parts, have FROM (SELECT path, parts,"
    " (SELECT count(*) FROM vectors WHERE item = items.id) AS have FROM items) AS counted"
    " WHERE parts != have OR have = 0 ORDER BY path"
)
"""A query for the items that lack vectors."""
MENDED = "`polyglance library repair` indexes the file again"

_NOUNS = {"vectors": "a vector", "thumbnails": "the thumbnail", "details": "a detail"}
_ONE_TABLE = sqlite3.sqlite_version_info >= (3, 33)
"""Whether SQLite can check a single table with its indexes."""


class Reader(Protocol):
    """What can be read from."""

    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""


def check(reader: Reader, library: str, *, write: bool = False) -> None:
    """Raise an error if items cannot be found any more, or are found by mistake.

    That is so where tables and indexes differ, or rows are missing. What else a row says is
    verified when it is read; a writer, which reads most of them, verifies all at once.

    Args:
        reader: Reads the library, in one transaction.
        library: Its name, for error messages.
        write: Also check all rows of items, free pages and thumbnails.
    """
    totals = read_totals(reader.fetch_all, library)
    if max(totals["items"].count, totals["vectors"].count) > CHECK_LIMIT:
        return
    arguments: tuple[str, ...] = ("(1)",)
    if not write and _ONE_TABLE:
        arguments = ("('items')", "('vectors')", "('details')", "('bad')")
    for argument in arguments:
        [[message], *_] = reader.fetch_all(f"PRAGMA integrity_check{argument}")
        if message != "ok":
            raise LibraryDamagedError(library, printable(str(message)))
    for table in ("vectors", "thumbnails" if write else "items", "details"):
        count, checksums = reader.fetch_all(f"SELECT count(*), sum(checksum) FROM {table}")[0]
        _compare(library, table, totals[table], count, checksums or 0)
    for table in ("items", "bad") if write else ("bad",):
        count = checksums = 0
        for row, checksum in read_rows(reader, table, library):
            if not matches(table, row, checksum):
                raise LibraryDamagedError(library, row_name(table, row))
            count, checksums = count + 1, checksums + checksum
        _compare(library, table, totals[table], count, checksums)


def find_damage(reader: Reader, library: str, width: int) -> Iterator[str]:
    """Yield a sentence for each damaged part: what is lost, and how to get it back.

    Args:
        reader: Reads the library.
        library: Its name, for error messages.
        width: Numbers per vector.

    Yields:
        The sentences.
    """
    steps: list[Callable[[], Iterator[str]]] = [
        partial(_page_faults, reader),
        partial(_incomplete_items, reader),
    ]
    steps += [partial(_table_faults, reader, table, library, width) for table in COUNTED]
    for step in steps:
        try:
            yield from step()
        except DataError as error:  # where reading stops; the next table may be readable
            yield str(error)


def read_rows(reader: Reader, table: str, library: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the rows of a table, as `COLUMNS`, with their checksums; never the same row twice.

    Args:
        reader: Reads the library.
        table: One of `COUNTED`.
        library: Its name, for error messages.

    Yields:
        Rows in order.
    """
    names = ", ".join(COLUMNS[table])
    if table not in KEYS:
        for *row, checksum in reader.fetch_all(f"SELECT {names}, checksum FROM {table}"):
            yield tuple(row), checksum
        return
    key, last = KEYS[table], -(1 << 63)
    while rows := reader.fetch_all(
        f"SELECT {names}, checksum FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?",
        (last, READ_BLOCK),
    ):
        for *row, checksum in rows:
            if not isinstance(row[0], int) or row[0] <= last:
                raise LibraryDamagedError(library, f"the row numbers of {table}")
            last = row[0]
            yield tuple(row), checksum


def _page_faults(reader: Reader) -> Iterator[str]:
    for (message,) in reader.fetch_all("PRAGMA integrity_check"):
        if message != "ok":
            yield (
                f"the file is damaged ({printable(str(message))}): `polyglance library repair`"
                " keeps what can be read"
            )
    for table, row, parent, _ in reader.fetch_all("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to a missing row of {parent}: {MENDED}"


def _incomplete_items(reader: Reader) -> Iterator[str]:
    for path, parts, count in reader.fetch_all(INCOMPLETE_ITEMS):
        yield f"{printable(str(path))}: {incomplete(count, parts)}: {MENDED}"


def incomplete(count: int, parts: int) -> str:
    """Return what an item has that should have ``parts`` vectors."""
    return "has no vector" if not count else f"has {count} of {parts} vectors"


def _table_faults(reader: Reader, table: str, library: str, width: int) -> Iterator[str]:
    total = read_totals(reader.fetch_all, library)[table]
    paths = {}
    if table in ("vectors", "thumbnails", "details"):
        paths = dict(reader.fetch_all("SELECT id, path FROM items"))
    count = checksums = faults = 0
    for row, checksum in read_rows(reader, table, library):
        if fault := row_fault(table, row, checksum, width):
            faults += 1
            item = row[1] if table == "vectors" else row[0]
            name = printable(str(paths[item])) if item in paths else row_name(table, row)
            yield f"{name}: {fault}: {MENDED}"
        else:
            count, checksums = count + 1, checksums + checksum
    if not faults:
        _compare(library, table, total, count, checksums)


def row_fault(table: str, row: tuple[Any, ...], checksum: object, width: int) -> str | None:
    """Return what is wrong with a row of `COLUMNS`, or None.

    Args:
        table: The row's table.
        row: The row.
        checksum: Its checksum.
        width: Numbers per vector.

    Returns:
        The fault, for a sentence that begins with the name of the row.
    """
    noun = _NOUNS.get(table, "what is on record")
    if not matches(table, row, checksum):
        return f"{noun} does not match its checksum"
    if table == "vectors":
        import numpy as np

        if len(row[4]) != width * FLOAT16.itemsize:
            return f"{noun} does not have {width} numbers"
        if not_unit(np.frombuffer(row[4], FLOAT16)[None]).any():
            return f"{noun} does not have length 1"
    return None


def row_name(table: str, row: tuple[Any, ...]) -> str:
    """Return what a damaged row was about, as far as it can be told."""
    path = next((value for value in row if isinstance(value, str) and "/" in value), None)
    return f"{table}, {printable(path)}" if path else f"row {row[0]} of {table}"


def _compare(library: str, table: str, total: Total, count: int, checksums: int) -> None:
    if (count, checksums) != (total.count, total.sum):
        difference = f"{abs(total.count - count):,} " if count != total.count else ""
        raise LibraryDamagedError(
            library, f"{difference}rows of {table} are missing, superfluous or changed"
        )
