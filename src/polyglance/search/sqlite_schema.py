"""The tables of a library in a file, and the check that a file has these and nothing else.

A file may come from a stranger: triggers, views and generated columns would run what they
wrote. So a file is used only if its schema is, word for word, one that Polyglance makes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeAlias

from polyglance.errors import DataError, printable
from polyglance.search.store import FORMAT, LibraryDamagedError

Schema: TypeAlias = dict[tuple[str, str], str]
"""Statements by type and name, without white space."""

_VERSION_1 = """
CREATE TABLE IF NOT EXISTS manifest (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS places (
    role TEXT NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (role, path)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('picture', 'clip')),
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    content TEXT NOT NULL,
    taken TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    seconds REAL
);
CREATE INDEX IF NOT EXISTS items_by_content ON items (content);
CREATE INDEX IF NOT EXISTS items_by_taken ON items (taken);
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    item INTEGER NOT NULL REFERENCES items (id) ON DELETE CASCADE,
    start REAL,
    stop REAL,
    vector BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS vectors_by_item ON vectors (item);
CREATE TABLE IF NOT EXISTS thumbnails (
    item INTEGER PRIMARY KEY REFERENCES items (id) ON DELETE CASCADE,
    webp BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS bad (
    path TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID
"""
_VERSION_2 = """
ALTER TABLE items ADD COLUMN parts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN thumbnail INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thumbnails ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE bad ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE places ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
CREATE TABLE totals (
    name TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    sum INTEGER NOT NULL,
    last INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE manifest_copy (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""
_VERSION_3 = """
CREATE TABLE details (
    item INTEGER PRIMARY KEY REFERENCES items (id) ON DELETE CASCADE,
    added TEXT,
    latitude REAL,
    longitude REAL,
    camera TEXT,
    place TEXT,
    ocr_text TEXT,
    extra TEXT,
    checksum INTEGER NOT NULL
);
CREATE INDEX details_by_camera ON details (camera);
CREATE INDEX details_by_place ON details (place);
CREATE INDEX items_by_kind ON items (kind, taken)
"""

UPGRADES = {2: _VERSION_2.split(";"), 3: _VERSION_3.split(";")}
"""The statements that make a library of one format from that of the one before;
`sqlite_upgrade` fills the new columns."""
_STATEMENTS = {
    1: _VERSION_1.split(";"),
    2: [*_VERSION_1.split(";"), *UPGRADES[2]],
    3: [*_VERSION_1.split(";"), *UPGRADES[2], *UPGRADES[3]],
}
CREATE_STATEMENTS = _STATEMENTS[FORMAT]
"""Create the tables of a new library; a new one is an upgraded empty one, word for word."""
_MADE_BY_SQLITE = {
    "sqlite_sequence": "CREATETABLEsqlite_sequence(name,seq)",
    "sqlite_stat1": "CREATETABLEsqlite_stat1(tbl,idx,stat)",
    "sqlite_stat4": "CREATETABLEsqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
"""Tables that may be there, word for word: a generated column could run for ever."""


def check_schema(rows: Iterable[tuple[Any, ...]], name: str) -> int:
    """Return the format, from 1 to `FORMAT`, of a library with this schema.

    Args:
        rows: Type, name and statement of each row of ``sqlite_master``.
        name: The library's name, for error messages.

    Returns:
        The format; a `DataError` says why there is none.
    """
    schema = _schema(rows)
    for version, statements in reversed(_STATEMENTS.items()):
        if schema == _expected(tuple(statements)):
            return version
    expected = _expected(tuple(CREATE_STATEMENTS))
    if foreign := sorted(schema.keys() - expected.keys()):
        kind, other = foreign[0]
        raise DataError(
            f"{name} has a {printable(kind)} {printable(other)}, which no library has and which"
            " might do harm: do not use what somebody changed, index the files yourself"
        )
    raise LibraryDamagedError(name, "its tables are not those of a library")


def manifest_tables(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return those of the tables that describe the model which are plain tables of ours."""
    expected, schema = _expected(tuple(CREATE_STATEMENTS)), _schema(rows)
    names = ("manifest", "manifest_copy")
    return [name for name in names if schema.get(("table", name)) == expected["table", name]]


def _schema(rows: Iterable[tuple[Any, ...]]) -> Schema:
    schema = {
        (str(kind), str(name)): "".join(str(statement).split()) for kind, name, statement in rows
    }
    for name, statement in _MADE_BY_SQLITE.items():
        if schema.get(("table", name)) == statement:
            del schema["table", name]
    return schema


@cache
def _expected(statements: tuple[str, ...]) -> Schema:
    """Return the schema that these statements make."""
    connection = sqlite3.connect(":memory:")
    try:
        for statement in statements:
            connection.execute(statement)
        return _schema(connection.execute("SELECT type, name, sql FROM sqlite_master"))
    finally:
        connection.close()
