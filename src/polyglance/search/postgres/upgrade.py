"""Upgrade a library of an earlier format on PostgreSQL.

Format 2 added the checksums of rows, format 3 the table of details.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyglance.search.postgres.tables import UPGRADES
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


_GRANTS = (
    "SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END, privilege_type"
    " FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = 'polyglance.items'::regclass"
    " AND grantee <> relowner"
)
"""Who else may do what with the items, and so with what belongs to them."""


def is_current(execute: Execute) -> bool:
    """Return whether the tables are those of this version."""
    row = execute("SELECT to_regclass('polyglance.details')").fetchone()
    return row is not None and row[0] is not None


def _has_checksums(execute: Execute) -> bool:
    row = execute(
        "SELECT 1 FROM pg_attribute WHERE attrelid = 'polyglance.items'::regclass"
        " AND attname = 'checksum' AND NOT attisdropped"
    ).fetchone()
    return row is not None


def upgrade(execute: Execute) -> None:
    """Upgrade the tables of an earlier format, within an open transaction."""
    if not _has_checksums(execute):
        _add_checksums(execute)
    for statement in UPGRADES[3]:
        execute(statement)
    for role, privilege in execute(_GRANTS).fetchall():
        execute(f"GRANT {privilege} ON details TO {role}")


def _add_checksums(execute: Execute) -> None:
    """Upgrade the tables of version 0.1 to format 2.

    Vectors have checksums already, and stay as they are: to write them again would build the
    graph again.
    """
    for statement in UPGRADES[2]:
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
