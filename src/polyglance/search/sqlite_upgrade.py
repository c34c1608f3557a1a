"""Upgrade a library of an earlier format.

Format 2 added the checksums of rows and the totals of tables, format 3 the table of details.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from polyglance.search.row_checksums import COLUMNS, COUNTED, KEYS, row_checksum
from polyglance.search.serialization import READ_BLOCK
from polyglance.search.sqlite_schema import UPGRADES
from polyglance.search.sqlite_totals import Total, write_total
from polyglance.search.store import LibraryDamagedError

Execute = Callable[..., Any]


def upgrade(execute: Execute, library: str, version: int) -> None:
    """Upgrade the tables of an earlier format, within an open transaction.

    Args:
        execute: Runs a statement.
        library: The library's name, for error messages.
        version: The format that they have.
    """
    if version == 1:
        _add_checksums(execute, library)
    for statement in UPGRADES[3]:
        execute(statement)
    write_total(execute, "details", Total())


def add_missing_tables(execute: Execute) -> None:
    """Add the empty tables that format 2 lacks to this connection alone, for reading."""
    table = next(statement for statement in UPGRADES[3] if "CREATE TABLE details" in statement)
    execute(table.replace("CREATE TABLE", "CREATE TEMP TABLE"))


def _add_checksums(execute: Execute, library: str) -> None:
    """Upgrade the tables of version 0.1 to format 2.

    The file is checked before: what is damaged must not get a checksum that says it is not.
    """
    [[message], *_] = execute("PRAGMA integrity_check(1)").fetchall()
    if message != "ok":
        raise LibraryDamagedError(library, str(message))
    for statement in UPGRADES[2]:
        execute(statement)
    execute(
        "UPDATE items SET parts = (SELECT count(*) FROM vectors WHERE vectors.item = items.id),"
        " thumbnail = EXISTS (SELECT 1 FROM thumbnails WHERE thumbnails.item = items.id)"
    )
    for table in COUNTED:
        if table == "details":
            continue
        count = total = last = 0
        for row, old in _rows(execute, table):
            if table == "vectors" and zlib.crc32(row[4]) != old:
                raise LibraryDamagedError(library, f"vector {row[0]} does not match its checksum")
            checksum = row_checksum(table, row)
            keys = COLUMNS[table][: 2 if table == "places" else 1]
            condition = " AND ".join(f"{key} = ?" for key in keys)
            execute(
                f"UPDATE {table} SET checksum = ? WHERE {condition}", (checksum, *row[: len(keys)])
            )
            count, total = count + 1, total + checksum
            last = row[0] if table in KEYS else 0
        given = execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        write_total(execute, table, Total(count, total, max(last, *(given or (0,)))))


def _rows(execute: Execute, table: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the rows of a table with what is in the column ``checksum``, in order."""
    names = ", ".join(COLUMNS[table])
    if table not in KEYS:
        rows: Sequence[Any] = execute(f"SELECT {names}, checksum FROM {table}").fetchall()
        yield from ((tuple(row[:-1]), row[-1]) for row in rows)
        return
    key, last = KEYS[table], -1
    while rows := execute(
        f"SELECT {names}, checksum FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?",
        (last, READ_BLOCK),
    ).fetchall():
        yield from ((tuple(row[:-1]), row[-1]) for row in rows)
        last = rows[-1][0]
