"""The SQLite file of a library: opening it, transactions and error messages.

The file may be damaged, come from a stranger, or be where nothing can be written. Its schema is
compared with ours before anything is read; small tables are verified at once, large ones when
they are first used (`sqlite_check`).
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.search.row_checksums import COUNTED
from polyglance.search.serialization import (
    CHECKSUM,
    check_format,
    manifest_checksum,
    model_info_from_rows,
    model_info_to_rows,
)
from polyglance.search.sqlite_schema import CREATE_STATEMENTS, check_schema, manifest_tables
from polyglance.search.sqlite_totals import Changes, Total, write_total
from polyglance.search.sqlite_upgrade import add_missing_tables, upgrade
from polyglance.search.store import FORMAT, LibraryDamagedError, LibraryNotFoundError, ModelInfo

Execute: TypeAlias = Callable[..., sqlite3.Cursor]

APPLICATION_ID = 0x50474C42
"""``PGLB`` in the file's header, which tells a library from any other SQLite file."""
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another writer; a transaction takes milliseconds."""
SCHEMA_SECONDS = 10.0
"""How long reading the schema may take; it takes a millisecond."""
MAX_VALUE_BYTES = 1 << 28
"""The largest value that is read; a damaged length must not fill the memory."""


class SqliteConnection:
    """A connection that threads may share."""

    def __init__(self, path: str | Path, model_info: ModelInfo | None = None) -> None:
        """Open a library; with a ``model_info``, create it if it does not exist."""
        self.path = Path(path)
        self._lock = threading.RLock()
        self._writes = 0
        self._stamp: tuple[int, ...] | None = None
        if self.path.is_dir():
            raise PolyglanceError(
                f"{self._name} is a folder, and a library is a file: give a name in it, such as"
                f" {printable(str(self.path / 'my.polyglance'))}"
            )
        if model_info is None and not self.path.is_file():
            raise LibraryNotFoundError(self._name)
        self.read_only = self.path.is_file() and not _is_writable(self.path)
        with self._readable_errors():
            self._connection = self._connect()
            try:
                self._set_up(None if self.read_only else model_info)
            except BaseException:
                self._connection.close()
                raise

    def revision(self) -> Hashable:
        """Return a value that changes with every write, by this or any other connection."""
        if self._stamp is not None and self._stamp != _stamp(self.path):
            raise PolyglanceError(
                f"{self._name} was changed elsewhere while it was open read-only: open it again"
            )
        return self._fetch_one("PRAGMA data_version")[0], self._writes

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def backup(self, target: sqlite3.Connection) -> None:
        """Copy the library as it is now into another database, while others may write."""
        with self._lock, self._readable_errors():
            self._connection.backup(target)

    @property
    def _name(self) -> str:
        return printable(str(self.path))

    def _connect(self) -> sqlite3.Connection:
        if not self.read_only:
            return connect(self.path)
        address = self.path.absolute().as_uri() + "?mode=ro"
        wal = Path(f"{self.path}-wal")
        if not wal.is_file() or not wal.stat().st_size:
            # SQLite's locks and shared memory would need a file beside this one.
            self._stamp = _stamp(self.path)
            return connect(address + "&immutable=1", uri=True)
        return connect(address, uri=True)

    def _set_up(self, model_info: ModelInfo | None) -> None:
        # In this order: another process that creates the library writes both at once.
        schema = self.fetch_all("SELECT type, name, sql FROM sqlite_master")
        application = self._fetch_one("PRAGMA application_id")[0]
        if not schema and model_info is None:
            raise LibraryNotFoundError(self._name)
        if schema and application != APPLICATION_ID:
            raise DataError(f"{self._name} is not a Polyglance library: give another file")
        self._refuse_newer(schema)
        version = check_schema(schema, self._name) if schema else 0
        if not self.read_only:
            self._use_wal()
        self._connection.execute("PRAGMA foreign_keys = ON")
        # FULL: an id that others have seen must survive a power cut, or it would be used again.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA fullfsync = ON")
        if model_info is not None:
            self._create(model_info)
            version = version or FORMAT
        if version == 2 and self.read_only:
            add_missing_tables(self._connection.execute)
        elif version < FORMAT:
            self._upgrade()
        self._model_info = self._read_model_info()

    def _refuse_newer(self, schema: list[Any]) -> None:
        """Say so if a later version made the library, whatever its other tables are."""
        tables = manifest_tables(schema)
        values = [
            self._fetch_one(f"SELECT value FROM {table} WHERE name = 'format'") for table in tables
        ]
        versions = [int(value[0]) for value in values if value and str(value[0]).isdecimal()]
        if tables and len(versions) == len(tables):
            check_format(min(versions), self._name)  # one of them alone may be damaged

    def _create(self, model_info: ModelInfo) -> None:
        self._connection.execute("PRAGMA page_size = 4096")
        with self._transaction() as execute:
            # If another process created it meanwhile, its choice of model holds.
            if execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                execute(f"PRAGMA application_id = {APPLICATION_ID}")
                for statement in CREATE_STATEMENTS:
                    execute(statement)
                for table in COUNTED:
                    write_total(execute, table, Total())
                write_manifest(execute, model_info)

    def _upgrade(self) -> None:
        """Upgrade a library of an earlier format; a read-only one of version 0.1 in memory."""
        if self.read_only:
            memory = connect(":memory:")
            self._connection.backup(memory)
            self._connection.close()
            self._connection, self._stamp = memory, self._stamp or _stamp(self.path)
        with self._transaction() as execute:
            schema = execute("SELECT type, name, sql FROM sqlite_master").fetchall()
            version = check_schema(schema, self._name)
            if version < FORMAT:  # else another process did it meanwhile
                upgrade(execute, self._name, version)
                rows = execute("SELECT name, value FROM manifest").fetchall()
                info = model_info_from_rows(rows, self._name, remedy="index again")
                write_manifest(execute, replace(info, format=FORMAT))

    def _read_model_info(self) -> ModelInfo:
        rows = self.fetch_all("SELECT name, value FROM manifest")
        copy = self.fetch_all("SELECT name, value FROM manifest_copy")
        # Compared as a set: a damaged value may have a type that has no order.
        if not is_manifest_sound(rows) or set(rows) != set(copy):
            raise LibraryDamagedError(self._name, "the description of its model")
        return model_info_from_rows(rows, self._name, remedy="index again")

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
    def changes(self) -> Iterator[Changes]:
        """Begin a write transaction that keeps checksums and totals."""
        with self._transaction() as execute:
            changes = Changes(execute, self._name)
            yield changes
            changes.finish()

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
            message = str(error)
            if "locked" in message:
                raise PolyglanceError(
                    f"another process has been writing to {self._name} for {LOCK_TIMEOUT:.0f}"
                    " seconds: try again when it is done"
                ) from error
            if "readonly" in message or (self.read_only and "unable to open" in message):
                raise PolyglanceError(
                    f"{self._name} cannot be written to: copy it, with {self.path.name}-wal if"
                    " that exists, to a folder that you may write to"
                ) from error
            if "decode" in message:  # the message has all of the text
                raise LibraryDamagedError(self._name, "a text is not UTF-8") from error
            if "no such" in message or "too big" in message:
                raise LibraryDamagedError(self._name, printable(message)) from error
            raise PolyglanceError(f"{self._name} cannot be used ({printable(message)})") from error
        except (sqlite3.IntegrityError, sqlite3.InternalError, sqlite3.DataError) as error:
            raise LibraryDamagedError(self._name, printable(str(error))) from error
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                raise DataError(
                    f"{self._name} is not a library, or its beginning is damaged: give another"
                    f" file, or try `polyglance library repair --library {shlex.quote(self._name)}`"
                ) from error
            raise LibraryDamagedError(self._name, printable(str(error))) from error
        except UnicodeDecodeError as error:  # SQLite's own message has damaged text
            raise LibraryDamagedError(self._name, "a text is not UTF-8") from error
        except (OverflowError, MemoryError) as error:  # a damaged length of a value
            raise LibraryDamagedError(self._name, printable(str(error))) from error


def connect(path: str | Path, *, uri: bool = False) -> sqlite3.Connection:
    """Open a file that may come from a stranger: nothing in it is run, and sizes are checked."""
    connection = sqlite3.connect(
        path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False, uri=uri
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        _load_schema(connection)
        connection.execute("PRAGMA cell_size_check = ON")
        if hasattr(connection, "setconfig"):  # Python 3.12
            for name in ("DEFENSIVE", "ENABLE_TRIGGER", "ENABLE_VIEW"):
                flag = getattr(sqlite3, f"SQLITE_DBCONFIG_{name}")
                connection.setconfig(flag, name == "DEFENSIVE")
    except BaseException:
        connection.close()
        raise
    return connection


def _load_schema(connection: sqlite3.Connection) -> None:
    """Let SQLite read the schema with little memory and time, before anybody can check it.

    With it SQLite reads its own table ``sqlite_stat1``, which a stranger may have given a column
    that computes something large. What cannot be read so stays under these limits.
    """
    limits = {
        sqlite3.SQLITE_LIMIT_LENGTH: (1 << 16, MAX_VALUE_BYTES),
        sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: (100, 50_000),
    }
    end = time.monotonic() + SCHEMA_SECONDS
    for limit, (before, _) in limits.items():
        connection.setlimit(limit, before)
    connection.set_progress_handler(lambda: time.monotonic() > end, 1000)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return  # said by the first query that needs it
    finally:
        connection.set_progress_handler(None, 0)
    for limit, (_, after) in limits.items():
        connection.setlimit(limit, after)


def write_manifest(execute: Callable[..., Any], info: ModelInfo) -> None:
    """Write the description of the model, with its checksum, and a copy on another page."""
    rows = model_info_to_rows(info)
    rows.append((CHECKSUM, str(manifest_checksum(rows))))
    for table in ("manifest", "manifest_copy"):
        for row in rows:
            execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", row)


def is_manifest_sound(rows: list[Any]) -> bool:
    """Return whether the rows of ``manifest`` match their checksum."""
    checksums = [value for name, value in rows if name == CHECKSUM]
    others = [row for row in rows if row[0] != CHECKSUM]
    return checksums == [str(manifest_checksum(others))]


def _is_writable(path: Path) -> bool:
    """Return whether SQLite can write: to the file, and to the files beside it."""
    if not os.access(path, os.W_OK):
        return False
    if os.access(path.parent, os.W_OK):
        return True
    return all(os.access(f"{path}{suffix}", os.W_OK) for suffix in ("-wal", "-shm"))


def _stamp(path: Path) -> tuple[int, ...]:
    status: os.stat_result | None = None
    with suppress(OSError):
        status = path.stat()
    return (status.st_size, status.st_mtime_ns, status.st_ino) if status else ()
