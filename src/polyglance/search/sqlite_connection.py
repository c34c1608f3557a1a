"""The SQLite file of a library: opening it, its tables, transactions and error messages."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.search.serialization import model_info_from_rows, model_info_to_rows
from polyglance.search.store import LibraryNotFoundError, ModelInfo

Execute: TypeAlias = Callable[..., sqlite3.Cursor]

APPLICATION_ID = 0x50474C42
"""``PGLB`` in the file's header, which tells a library from any other SQLite file."""
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another writer; a transaction takes milliseconds."""

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


class SqliteConnection:
    """A connection that threads may share."""

    def __init__(self, path: str | Path, model_info: ModelInfo | None = None) -> None:
        """Open a library; with a ``model_info``, create it if it does not exist."""
        self.path = Path(path)
        self._lock = threading.RLock()
        self._writes = 0
        if model_info is None and not self.path.is_file():
            raise LibraryNotFoundError(self._name)
        with self._readable_errors():
            self._connection = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
            )
            try:
                self._set_up(model_info)
            except BaseException:
                self._connection.close()
                raise

    def revision(self) -> Hashable:
        """Return a value that changes with every write, by this or any other connection."""
        return self._fetch_one("PRAGMA data_version")[0], self._writes

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @property
    def _name(self) -> str:
        return printable(str(self.path))

    def _set_up(self, model_info: ModelInfo | None) -> None:
        # In this order: another process that creates the library writes both at once.
        empty = self._fetch_one("SELECT count(*) FROM sqlite_master")[0] == 0
        application = self._fetch_one("PRAGMA application_id")[0]
        if empty and model_info is None:
            raise LibraryNotFoundError(self._name)
        if not empty and application != APPLICATION_ID:
            raise DataError(f"{self._name} is not a Polyglance library: give another file")
        self._use_wal()
        self._connection.execute("PRAGMA foreign_keys = ON")
        # A killed process loses nothing; a power cut loses at most the last transactions.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if model_info is not None:
            with self._transaction() as execute:
                execute(f"PRAGMA application_id = {APPLICATION_ID}")
                for statement in _TABLES.split(";"):
                    execute(statement)
                # If another process created it meanwhile, its choice of model holds.
                if execute("SELECT 1 FROM manifest").fetchone() is None:
                    for row in model_info_to_rows(model_info):
                        execute("INSERT INTO manifest VALUES (?, ?)", row)
        self._model_info = model_info_from_rows(
            self.fetch_all("SELECT * FROM manifest"),
            self._name,
            remedy="delete it and index again",
        )

    def _use_wal(self) -> None:
        """Switch to WAL mode; this pragma does not honour the connection's timeout."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _fetch_one(self, statement: str, values: Any = ()) -> Any:
        """Return the first row of a query, or None."""
        with self._lock, self._readable_errors():
            return self._connection.execute(statement, values).fetchone()

    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, self._readable_errors():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        """Begin a write transaction, committed at the end or rolled back as a whole."""
        with self._lock, self._readable_errors():
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
    def _readable_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into a sentence that says what to do."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise PolyglanceError(f"{self._name} is closed: open the library again") from None
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise PolyglanceError(
                    f"another process has been writing to {self._name} for {LOCK_TIMEOUT:.0f}"
                    " seconds: try again when it is done"
                ) from error
            raise PolyglanceError(f"{self._name} cannot be used ({error})") from error
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self._name} is damaged or not a library ({error}): restore it from a backup, or"
                " delete it and index again"
            ) from error
