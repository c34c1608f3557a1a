"""The database of a library on PostgreSQL: connection, transactions and error messages.

A server may be restarted or moved while a library is in use. So a transaction is a function
that is called again as a whole, on a new connection, until the server is back or a timeout
ends; so it is after a conflict with another writer. That is safe, because every write may be
repeated (`polyglance.search.store`).

Vector ids must become visible in rising order, while transactions commit in any order. So a
writer takes its turn before it assigns ids: it updates the only row of ``state``, which stays
locked until the transaction ends. The slow part, inserting vectors into the graph, comes
before that and runs in parallel; therefore vectors and their ids are in two tables.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar

from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.search.approximate import EF_SEARCH
from polyglance.search.postgres.address import Address
from polyglance.search.postgres.foreign_objects import FOREIGN_OBJECTS
from polyglance.search.postgres.tables import create_statements
from polyglance.search.postgres.upgrade import is_current, upgrade
from polyglance.search.serialization import model_info_from_rows, model_info_to_rows
from polyglance.search.store import (
    FORMAT,
    LibraryNotFoundError,
    LibraryUnavailableError,
    ModelInfo,
)

try:
    import psycopg
    from pgvector.psycopg import register_vector
    from psycopg import errors
except ModuleNotFoundError as missing:
    raise MissingExtraError("a library on PostgreSQL", "postgres") from missing

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Work: TypeAlias = Callable[[Connection], T]

TIMEOUT = 60.0
"""Seconds that a server may be away, or that a writer waits for another."""
MIN_PGVECTOR = (0, 8)
"""The first version with iterative scans, which search on until enough rows pass a filter."""
MAX_LOST_CONNECTIONS = 5
"""How often a connection may be lost over the same work, which may be what kills the server."""
LOCK_CLASS = 0x50474C42
"""``PGLB``: the first key of the advisory locks of libraries."""
CREATE_LOCK, GRAPH_LOCK = 1, 2
"""The second key: for creating the tables, and for building the graph."""

WriteConflict: TypeAlias = errors.SerializationFailure
"""Another writer changed the same rows: the transaction is run again."""
_SHUTDOWN = ("57P01", "57P02", "57P03")
"""Error codes of a server that shuts down, has crashed, or is starting."""
_IDLE_TIMEOUT = ("25P03", "25P04")
"""Error codes for a session that was idle in a transaction, as on a machine that slept."""
_SESSION = {
    "lock_timeout": f"{TIMEOUT:.0f}s",
    # A writer whose machine is gone must not block the others.
    "idle_in_transaction_session_timeout": f"{TIMEOUT:.0f}s",
    "tcp_keepalives_idle": "30",
    # An id that others have seen must not be lost, or it would be assigned again.
    "synchronous_commit": "on",
    # Whether the graph is worth using depends on the number of vectors asked for.
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "hnsw.ef_search": str(EF_SEARCH),
    "hnsw.iterative_scan": "relaxed_order",
}


def to_placeholders(statement: str) -> str:
    """Write psycopg's placeholders for the ``?`` of `polyglance.search.sql_store`."""
    return statement.replace("?", "%s")


class PostgresDatabase:
    """A connection that threads may share, reopened when it is lost."""

    def __init__(self, url: str, model_info: ModelInfo | None = None) -> None:
        """Open the library of a database; with a ``model_info``, create it if it is missing."""
        self._url, self._address = url, Address.parse(url)
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._closed = self._prepared = False
        # Since when the server has been away; -inf until it has answered once.
        self._away_since: float | None = -math.inf
        try:
            if model_info is not None:
                self.transaction(lambda connection: self._create(connection, model_info))
            self._model_info = self._read_model_info()
        except BaseException:
            self.close()
            raise

    def revision(self) -> Hashable:
        """Return a value that changes with every write, by anybody."""
        return int(self._fetch_one("SELECT revision FROM state")[0])

    def size(self) -> int:
        """Return the bytes on the server's disk."""
        [size] = self._fetch_one(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = 'polyglance'::regnamespace AND relkind = 'r'"
        )
        return int(size)

    def run_outside_transaction(self, work: Work[T]) -> T:
        """Run long work outside a transaction, without a lock timeout.

        It gets a connection of its own, so that others can use this one meanwhile.
        """

        def without_timeout(connection: Connection) -> T:
            connection.execute("SET lock_timeout = 0")
            return work(connection)

        own = PostgresDatabase(self._url)
        try:
            return own._attempt(without_timeout)
        finally:
            own.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    @property
    def _name(self) -> str:
        return self._address.name

    def _fetch_one(self, statement: str, values: Any = ()) -> Any:
        """Return the first row of a query, or None."""
        query = to_placeholders(statement)
        return self._attempt(lambda c: c.execute(query, values, binary=True).fetchone())

    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""
        query = to_placeholders(statement)
        return self._attempt(lambda c: c.execute(query, values, binary=True).fetchall())

    def transaction(self, work: Work[T]) -> T:
        """Run `work` in a transaction, as a whole or not at all; it may be called repeatedly."""

        def in_transaction(connection: Connection) -> T:
            with connection.transaction():
                return work(connection)

        return self._attempt(in_transaction)

    @staticmethod
    def _take_turn(connection: Connection, num_ids: int = 0) -> int:
        """Become the only writer until the transaction ends.

        Returns:
            The last vector id assigned so far; the ``num_ids`` after it are the caller's.
        """
        row = connection.execute(
            "UPDATE state SET revision = revision + 1, last = last + %s RETURNING last", (num_ids,)
        ).fetchone()
        assert row is not None
        return int(row[0]) - num_ids

    def _attempt(self, work: Work[T]) -> T:
        """Run `work`, again after a conflict with another writer or when the server is back."""
        since, pause, losses, cause = time.monotonic(), 0.02, 0, psycopg.Error()
        with self._lock, self._readable_errors():
            while True:
                try:
                    result = work(self._connected())
                    self._away_since = None
                    return result
                except (WriteConflict, errors.DeadlockDetected) as error:
                    cause = error
                except psycopg.InternalError as error:
                    if error.sqlstate not in _IDLE_TIMEOUT:
                        raise
                    if self._connection is not None:
                        self._connection.close()
                    self._connection, losses = None, losses + 1
                    since, cause = time.monotonic(), error  # the server was not away
                except psycopg.OperationalError as error:
                    if self._connection is not None:
                        if error.sqlstate in _SHUTDOWN:
                            self._connection.close()  # psycopg does not know yet that it is lost
                        if not self._connection.closed:
                            raise  # the server is there, and refuses
                        self._connection, losses = None, losses + 1
                    if self._away_since is None or "the database system is" in str(error):
                        self._away_since = time.monotonic() if self._away_since is None else since
                    since, cause = self._away_since, error
                if losses > MAX_LOST_CONNECTIONS or time.monotonic() > since + TIMEOUT:
                    raise cause
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _connected(self) -> Connection:
        if self._closed:
            raise PolyglanceError(f"{self._name} is closed: open the library again")
        if self._connection is None or self._connection.closed:
            self._connection = None
            connection = psycopg.connect(**self._address.parts, autocommit=True)
            try:
                self._prepared = self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: Connection) -> bool:
        """Set up a session; return False if the database has no pgvector."""
        extension = connection.execute(
            "SELECT extversion, quote_ident(nspname) FROM pg_extension"
            " JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
        ).fetchone()
        if extension is None:
            return False
        version, schema = extension
        if tuple(int(part) for part in version.split(".")[:2]) < MIN_PGVECTOR:
            raise PolyglanceError(
                f"{self._name} has pgvector {version}: install 0.8 or later on the server, and"
                " run `ALTER EXTENSION vector UPDATE` there"
            )
        settings = _SESSION | {"search_path": f"polyglance, {schema}"}
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[])"
            " AS settings (name, value)",
            (list(settings), list(settings.values())),
        )
        register_vector(connection)
        return True

    def _create(self, connection: Connection, model_info: ModelInfo) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCK_CLASS, CREATE_LOCK))
        if not self._prepare(connection):
            connection.execute("CREATE EXTENSION vector")
            self._prepare(connection)
        self._prepared = True
        if self._exists(connection):
            return  # created by another process meanwhile: its choice of model holds
        for statement in create_statements(model_info.width):
            connection.execute(statement)
        for row in model_info_to_rows(model_info):
            connection.execute("INSERT INTO manifest VALUES (%s, %s)", row)

    def _upgrade(self, connection: Connection) -> None:
        """Upgrade a library of an earlier version, which then refuses it."""
        try:
            with connection.transaction():
                connection.execute(
                    "SELECT pg_advisory_xact_lock(%s, %s)", (LOCK_CLASS, CREATE_LOCK)
                )
                if not is_current(connection.execute):  # else another process did it meanwhile
                    self._prepare(connection)
                    self._take_turn(connection)
                    upgrade(partial(connection.execute, binary=True))
                    connection.execute(
                        "UPDATE manifest SET value = %s WHERE name = 'format'", (str(FORMAT),)
                    )
        except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
            raise PolyglanceError(
                f"{self._name} was made by an earlier version, and you may not change its tables:"
                " ask its owner to open it once, with `polyglance library info`"
            ) from error

    def _refuse_foreign(self, connection: Connection) -> None:
        """Refuse a schema in which a stranger's code would run with this user's rights."""
        foreign = connection.execute(FOREIGN_OBJECTS).fetchone()
        if foreign is not None:
            raise DataError(
                f"{self._name} has a {foreign[0]}, which no library has and which might do harm:"
                " ask whoever made it to drop it, or index into another database"
            )

    @staticmethod
    def _exists(connection: Connection) -> bool:
        row = connection.execute("SELECT to_regclass('polyglance.manifest')").fetchone()
        return row is not None and row[0] is not None

    def _read_model_info(self) -> ModelInfo:
        def exists(connection: Connection) -> bool:
            if not self._exists(connection):
                return False
            self._refuse_foreign(connection)
            if not is_current(connection.execute):
                self._upgrade(connection)
            # The library, and pgvector with it, may have been created since this session began.
            return self._prepared or self._prepare(connection)

        if not self._attempt(exists):
            raise LibraryNotFoundError(self._name)
        return model_info_from_rows(
            self.fetch_all("SELECT * FROM manifest"),
            self._name,
            remedy="drop the schema polyglance and index again",
        )

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """Turn PostgreSQL's errors into a sentence that says what to do."""
        try:
            yield
        except psycopg.Error as error:
            raise self._readable(error) from error

    def _readable(self, error: psycopg.Error) -> PolyglanceError:
        message = self._address.error_message(error)
        match error:
            case errors.LockNotAvailable():
                return PolyglanceError(
                    f"another process has been writing to {self._name} for {TIMEOUT:.0f} seconds:"
                    " try again when it is done"
                )
            case errors.UndefinedFile() | errors.FeatureNotSupported():
                return PolyglanceError(
                    f"{self._name} lacks pgvector ({message}): install it on the server"
                )
            case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
                return PolyglanceError(
                    f"{self._name} does not permit this ({message}): ask the server's administrator"
                )
            case psycopg.OperationalError() if (
                error.sqlstate is None or self._away_since is not None
            ):
                return LibraryUnavailableError(
                    f"{self._name} does not answer ({message}): is the server running, and are the"
                    " address and the password right?"
                )
            case psycopg.OperationalError():
                return LibraryUnavailableError(f"{self._name} cannot be used ({message})")
            case psycopg.InternalError() if error.sqlstate in _IDLE_TIMEOUT:
                return LibraryUnavailableError(f"{self._name} cannot be used ({message})")
        return DataError(
            f"{self._name} is damaged or not a library ({message}): restore it from a backup, or"
            " index into another database"
        )
