"""The database of a library on PostgreSQL: transactions, and errors in plain words.

A server may be restarted or moved while a library is used. So a transaction is a function
that is called again as a whole, on a new connection, until the server is back or patience
ends; a writer that another one got in the way of does the same. That is safe, because every
write may be repeated (`polyglance.search.store`).

Numbers of vectors must appear in their order, while writers finish in any. So a writer takes
its turn before it gives numbers: it changes the one row of ``state``, which locks it until
the transaction ends. What takes long, linking vectors into the graph, is done before that,
by several writers at once; vectors therefore lie in one table and their numbers in another.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeAlias, TypeVar

from polyglance.errors import DataError, MissingExtra, PolyglanceError
from polyglance.search.approximate import SEARCHING
from polyglance.search.postgres.address import Address
from polyglance.search.postgres.tables import tables
from polyglance.search.store import FORMAT, Manifest, NoLibrary, Unreachable

try:
    import psycopg
    from pgvector.psycopg import register_vector
    from psycopg import errors
except ModuleNotFoundError as missing:
    raise MissingExtra("a library on PostgreSQL", "postgres") from missing

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Work: TypeAlias = Callable[[Connection], T]

PATIENCE = 60.0
"""Seconds that a server may be away, or that a writer waits for another."""
PGVECTOR = (0, 8)
"""The version that goes on searching the graph until enough are found that a filter lets pass."""
LOSSES = 5
"""How often a connection may be lost over the same work, which may be what kills the server."""
LOCKS = 0x50474C42
"""``PGLB``: the first number of the advisory locks of libraries."""
CREATING, LINKING = 1, 2
"""The second: of who makes the tables, and of who makes the graph."""

Overtaken: TypeAlias = errors.SerializationFailure
"""Another writer was quicker: the whole once more."""
_LEAVING = ("57P01", "57P02", "57P03")
"""The server takes its leave of a session: it was told to, it crashed, or it starts."""
_PAUSED = ("25P03", "25P04")
"""A server lets go of one who pauses in a transaction, as a machine that was asleep."""
_SESSION = {
    "lock_timeout": f"{PATIENCE:.0f}s",
    # A writer whose machine is gone must not keep the others waiting.
    "idle_in_transaction_session_timeout": f"{PATIENCE:.0f}s",
    "tcp_keepalives_idle": "30",
    # A number that others saw must not be lost, for it would be given again.
    "synchronous_commit": "on",
    # How many vectors are asked for decides whether the graph is of use.
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "hnsw.ef_search": str(SEARCHING),
    "hnsw.iterative_scan": "relaxed_order",
}


class PostgresDatabase:
    """A connection that threads may share, made again when it is lost."""

    def __init__(self, url: str, manifest: Manifest | None = None) -> None:
        """Open the library of a database; with a ``manifest``, make it where there is none."""
        self._url, self._address = url, Address.of(url)
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._closed = self._prepared = False
        # When the server was found to be away; at first nobody has seen it.
        self._away: float | None = -math.inf
        try:
            if manifest is not None:
                self.transaction(lambda connection: self._create(connection, manifest))
            self._manifest = self._read_manifest()
        except BaseException:
            self.close()
            raise

    def revision(self) -> Hashable:
        """A value that is another one after a write, by anybody."""
        return int(self._one("SELECT revision FROM state")[0])

    def size(self) -> int:
        """Bytes on the server's disk."""
        [size] = self._one(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = 'polyglance'::regnamespace AND relkind = 'r'"
        )
        return int(size)

    def apart(self, work: Work[T]) -> T:
        """Do what takes long, outside of a transaction, and wait for others without end.

        It has a connection of its own, so that others can use this one meanwhile.
        """

        def alone(connection: Connection) -> T:
            connection.execute("SET lock_timeout = 0")
            return work(connection)

        own = PostgresDatabase(self._url)
        try:
            return own._attempt(alone)
        finally:
            own.close()

    def close(self) -> None:
        """Let go of the server."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    @property
    def _name(self) -> str:
        return self._address.name

    def _one(self, statement: str, values: Any = ()) -> Any:
        return self._attempt(lambda c: c.execute(statement, values, binary=True).fetchone())

    def ask(self, statement: str, values: Any = ()) -> list[Any]:
        """The rows that answer a statement."""
        return self._attempt(lambda c: c.execute(statement, values, binary=True).fetchall())

    def _writing(self, work: Work[T]) -> T:
        """A transaction of one who takes a turn at once."""

        def in_turn(connection: Connection) -> T:
            self._take_turn(connection)
            return work(connection)

        return self.transaction(in_turn)

    def transaction(self, work: Work[T]) -> T:
        """A transaction that is whole or absent; it may be called more than once."""

        def whole(connection: Connection) -> T:
            with connection.transaction():
                return work(connection)

        return self._attempt(whole)

    @staticmethod
    def _take_turn(connection: Connection, numbers: int = 0) -> int:
        """Be the only one who writes until the transaction ends; the last number that was given.

        So many ``numbers`` after it are given to the caller.
        """
        row = connection.execute(
            "UPDATE state SET revision = revision + 1, last = last + %s RETURNING last", (numbers,)
        ).fetchone()
        assert row is not None
        return int(row[0]) - numbers

    def _attempt(self, work: Work[T]) -> T:
        """Do some work; again where another writer got in its way, or when the server is back."""
        since, pause, losses, why = time.monotonic(), 0.02, 0, psycopg.Error()
        with self._lock, self._plain_errors():
            while True:
                try:
                    done = work(self._connected())
                    self._away = None
                    return done
                except (Overtaken, errors.DeadlockDetected) as error:
                    why = error
                except psycopg.InternalError as error:
                    if error.sqlstate not in _PAUSED:
                        raise
                    if self._connection is not None:
                        self._connection.close()
                    self._connection, losses = None, losses + 1
                    since, why = time.monotonic(), error  # the pause was not the server's
                except psycopg.OperationalError as error:
                    if self._connection is not None:
                        if error.sqlstate in _LEAVING:
                            self._connection.close()  # it does not know yet that nobody is there
                        if not self._connection.closed:
                            raise  # it is there, and says no
                        self._connection, losses = None, losses + 1
                    if self._away is None or "the database system is" in str(error):
                        self._away = time.monotonic() if self._away is None else since
                    since, why = self._away, error
                if losses > LOSSES or time.monotonic() > since + PATIENCE:
                    raise why
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _connected(self) -> Connection:
        if self._closed:
            raise PolyglanceError(f"{self._name} was closed: open the library again")
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
        """Set up a session, if the database has pgvector."""
        found = connection.execute(
            "SELECT extversion, quote_ident(nspname) FROM pg_extension"
            " JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
        ).fetchone()
        if found is None:
            return False
        version, schema = found
        if tuple(int(part) for part in version.split(".")[:2]) < PGVECTOR:
            raise PolyglanceError(
                f"{self._name} has pgvector {version}: install 0.8 or later on the server, and"
                " have `ALTER EXTENSION vector UPDATE` run there"
            )
        settings = _SESSION | {"search_path": f"polyglance, {schema}"}
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[])"
            " AS settings (name, value)",
            (list(settings), list(settings.values())),
        )
        register_vector(connection)
        return True

    def _create(self, connection: Connection, manifest: Manifest) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, CREATING))
        if not self._prepare(connection):
            connection.execute("CREATE EXTENSION vector")
            self._prepare(connection)
        self._prepared = True
        if self._exists(connection):
            return  # somebody was quicker: then the manifest is what they chose
        for statement in tables(manifest.width):
            connection.execute(statement)
        for name, value in asdict(manifest).items():
            connection.execute("INSERT INTO manifest VALUES (%s, %s)", (name, json.dumps(value)))

    @staticmethod
    def _exists(connection: Connection) -> bool:
        found = connection.execute("SELECT to_regclass('polyglance.manifest')").fetchone()
        return found is not None and found[0] is not None

    def _read_manifest(self) -> Manifest:
        def is_there(connection: Connection) -> bool:
            if not self._exists(connection):
                return False
            # It may have been made, and pgvector with it, since this session began.
            return self._prepared or self._prepare(connection)

        if not self._attempt(is_there):
            raise NoLibrary(self._name)
        try:
            plain = {name: json.loads(text) for name, text in self.ask("SELECT * FROM manifest")}
            if plain["format"] <= FORMAT:
                return Manifest(**plain)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self._name} has no whole manifest: drop the schema polyglance and index anew"
            ) from error
        raise DataError(
            f"{self._name} was made by a newer Polyglance: pip install --upgrade polyglance"
        )

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """PostgreSQL's errors in a sentence with the way out, and without the password."""
        try:
            yield
        except psycopg.Error as error:
            raise self._plain(error) from error

    def _plain(self, error: psycopg.Error) -> PolyglanceError:
        why = self._address.told(error)
        match error:
            case errors.LockNotAvailable():
                return PolyglanceError(
                    f"{self._name} has been written by another process for {PATIENCE:.0f} seconds:"
                    " try again when that is done"
                )
            case errors.UndefinedFile() | errors.FeatureNotSupported():
                return PolyglanceError(
                    f"{self._name} lacks pgvector ({why}): install it on the server"
                )
            case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
                return PolyglanceError(
                    f"{self._name} does not permit that ({why}): ask who looks after the server"
                )
            case psycopg.OperationalError() if error.sqlstate is None or self._away is not None:
                return Unreachable(
                    f"{self._name} does not answer ({why}): is the server running, and are the"
                    " address and the password right?"
                )
            case psycopg.OperationalError():
                return Unreachable(f"{self._name} cannot be used ({why})")
            case psycopg.InternalError() if error.sqlstate in _PAUSED:
                return Unreachable(f"{self._name} cannot be used ({why})")
        return DataError(
            f"{self._name} is damaged or no library ({why}): take it from a copy, or index anew"
            " into another database"
        )
