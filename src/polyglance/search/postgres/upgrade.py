"""Upgrade a library of version 0.1 on PostgreSQL: add the checksums of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyglance.search.postgres.tables import UPGRADE_STATEMENTS
from polyglance.search.row_checksums import COLUMNS, number_checksum, row_checksum
from polyglance.search.serialization import READ_BLOCK

Execute = Callable[..., Any]

_KEYS = {
    "items": {"id": "bigint"},
    "thumbnails": {"item": "bigint"},
    "bad": {"path": "text"},
    "places": {"role": "text", "path": "text"},
}
"""The primary keys of the tables, with their types."""


def is_current(execute: Execute) -> bool:
    """Return whether the tables have the columns of this version."""
    row = execute(
        "SELECT 1 FROM pg_attribute WHERE attrelid = 'polyglance.items'::regclass"
        " AND attname = 'checksum' AND NOT attisdropped"
    ).fetchone()
    return row is not None


def upgrade(execute: Execute) -> None:
    """Upgrade the tables of version 0.1, within an open transaction.

    Vectors have checksums already, and stay as they are: to write them again would build the
    graph again.
    """
    for statement in UPGRADE_STATEMENTS:
        execute(statement)
    execute(
        "UPDATE items SET parts = (SELECT count(*) FROM vectors WHERE vectors.item = items.id),"
        " thumbnail = EXISTS (SELECT 1 FROM thumbnails WHERE thumbnails.item = items.id)::integer"
    )
    for table, keys in _KEYS.items():
        _fill(execute, table, keys)
    last = 0
    while rows := execute(
        "SELECT id, item, start, stop, vectors.checksum FROM numbers"
        " JOIN vectors USING (item, part) WHERE id > %s ORDER BY id LIMIT %s",
        (last, READ_BLOCK),
    ).fetchall():
        _write(
            execute, "numbers", {"id": "bigint"}, [(row[0], number_checksum(*row)) for row in rows]
        )
        last = rows[-1][0]


def _fill(execute: Execute, table: str, keys: dict[str, str]) -> None:
    names, columns = ", ".join(keys), ", ".join(COLUMNS[table])
    after, last = "", tuple[Any, ...]()
    while rows := execute(
        f"SELECT {names}, {columns} FROM {table} {after} ORDER BY {names} LIMIT {READ_BLOCK}", last
    ).fetchall():
        checksums = [(*row[: len(keys)], row_checksum(table, row[len(keys) :])) for row in rows]
        _write(execute, table, keys, checksums)
        last = rows[-1][: len(keys)]
        after = f"WHERE ({names}) > ({', '.join(['%s'] * len(keys))})"


def _write(
    execute: Execute, table: str, keys: dict[str, str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Write checksums; a row has the key and the checksum."""
    types = [*keys.values(), "bigint"]
    arrays = ", ".join(f"%s::{kind}[]" for kind in types)
    same = " AND ".join(f"{table}.{key} = given.{key}" for key in keys)
    execute(
        f"UPDATE {table} SET checksum = given.checksum"
        f" FROM unnest({arrays}) AS given ({', '.join(keys)}, checksum) WHERE {same}",
        [list(column) for column in zip(*rows, strict=True)],
    )
