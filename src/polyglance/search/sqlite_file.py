"""The SQLite file of a library: opening it, its tables, transactions, and errors in plain words."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.search.store import FORMAT, Manifest, NoLibrary

Run: TypeAlias = Callable[..., sqlite3.Cursor]

APPLICATION = 0x50474C42
"""``PGLB`` in the header of the file: what tells a library from any other SQLite file."""
PATIENCE = 60.0
"""Seconds that a writer waits for another; a transaction takes milliseconds."""

_TABLES = """
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


class SqliteFile:
    """A connection that threads may share, and what every statement goes through."""

    def __init__(self, path: str | Path, manifest: Manifest | None = None) -> None:
        """Open a library; with a ``manifest``, make it where there is none."""
        self.path = Path(path)
        self._lock = threading.RLock()
        self._writes = 0
        if manifest is None and not self.path.is_file():
            raise NoLibrary(self._name)
        with self._plain_errors():
            self._connection = sqlite3.connect(
                self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._set_up(manifest)
            except BaseException:
                self._connection.close()
                raise

    def revision(self) -> Hashable:
        """A value that is another one after a write, by this or any other connection."""
        return self._one("PRAGMA data_version")[0], self._writes

    def close(self) -> None:
        """Let go of the file; what was written is in it."""
        with self._lock:
            self._connection.close()

    @property
    def _name(self) -> str:
        return printable(str(self.path))

    def _set_up(self, manifest: Manifest | None) -> None:
        # In this order: whoever makes it meanwhile writes both at once.
        empty = self._one("SELECT count(*) FROM sqlite_master")[0] == 0
        application = self._one("PRAGMA application_id")[0]
        if empty and manifest is None:
            raise NoLibrary(self._name)
        if not empty and application != APPLICATION:
            raise DataError(f"{self._name} is not a library of Polyglance: give another file")
        self._use_wal()
        self._connection.execute("PRAGMA foreign_keys = ON")
        # A killed process loses nothing; a power cut at most the last transactions.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if manifest is not None:
            with self._writing() as run:
                run(f"PRAGMA application_id = {APPLICATION}")
                for statement in _TABLES.split(";"):
                    run(statement)
                # Another process may have been quicker: then the manifest is what it chose.
                if run("SELECT 1 FROM manifest").fetchone() is None:
                    for name, value in asdict(manifest).items():
                        run("INSERT INTO manifest VALUES (?, ?)", (name, json.dumps(value)))
        self._manifest = self._read_manifest()

    def _use_wal(self) -> None:
        """Write ahead; the change of mode alone does not wait for others by itself."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def _read_manifest(self) -> Manifest:
        try:
            plain = {name: json.loads(text) for name, text in self._all("SELECT * FROM manifest")}
            if plain["format"] <= FORMAT:
                return Manifest(**plain)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self._name} has no whole manifest: delete it and index anew"
            ) from error
        raise DataError(
            f"{self._name} was made by a newer Polyglance: pip install --upgrade polyglance"
        )

    def _one(self, statement: str, values: Any = ()) -> Any:
        with self._lock, self._plain_errors():
            return self._connection.execute(statement, values).fetchone()

    def _all(self, statement: str, values: Any = ()) -> list[Any]:
        with self._lock, self._plain_errors():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[Run]:
        """A transaction that is whole or absent; what it yields runs a statement."""
        with self._lock, self._plain_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
                self._writes += 1
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """SQLite's errors in a sentence with the way out."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise PolyglanceError(f"{self._name} was closed: open the library again") from None
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise PolyglanceError(
                    f"{self._name} has been written by another process for {PATIENCE:.0f} seconds:"
                    " try again when that is done"
                ) from error
            raise PolyglanceError(f"{self._name} cannot be used ({error})") from error
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self._name} is damaged or no library ({error}): take it from a copy, or delete"
                " it and index anew"
            ) from error
