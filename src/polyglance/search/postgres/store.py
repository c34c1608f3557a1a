"""A library on PostgreSQL with pgvector: any number of machines write and search it at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from polyglance.search.postgres.database import (
    Connection,
    PostgresDatabase,
    WriteConflict,
    to_placeholders,
)
from polyglance.search.postgres.tables import to_pgvector
from polyglance.search.serialization import (
    FLOAT16,
    ITEM_COLUMNS,
    READ_BLOCK,
    check_vectors,
    ids_from_rows,
    item_to_row,
    not_unit,
    vector_to_bytes,
)
from polyglance.search.sql_store import Dialect, FetchAll, SqlStore
from polyglance.search.store import (
    BadFile,
    Entry,
    FileSignature,
    Ids,
    LibraryDamagedError,
    Role,
)

T = TypeVar("T")
Execute: TypeAlias = Callable[..., Any]
"""Runs a statement with values inside a transaction; returns its cursor."""
_ITEM_ARRAYS = (
    "unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::text[],"
    " %s::text[], %s::integer[], %s::integer[], %s::float8[])"
)
"""Rows from arrays of the ids and columns of items."""


class PostgresStore(PostgresDatabase, SqlStore):
    """A `Store` in a database; threads and processes may share it."""

    _dialect = Dialect(
        id_table="numbers",
        vectors="numbers JOIN vectors USING (item, part)",
        vector_order="part",
        in_paths="= ANY(?::text[])",
        in_ids="= ANY(?::bigint[])",
        among_ids="unnest(?::bigint[]) AS near (value) JOIN numbers ON numbers.id = near.value",
        as_list=list,
    )

    def put(self, entries: Iterable[Entry]) -> None:
        """Store items; what is on record of their paths is replaced where it differs.

        The slow part comes first and blocks nobody: vectors are written for items that are
        inserted once it is this writer's turn.
        """
        by_path = {entry.item.path: entry for entry in entries}
        for path, entry in by_path.items():
            check_vectors(path, entry.vectors)

        def write(connection: Connection) -> None:
            before = _unchanged_items(connection, by_path)
            fresh = [entry for path, entry in by_path.items() if path not in before]
            items = dict(zip(fresh, _new_item_ids(connection, len(fresh)), strict=True))
            _copy_vectors(connection, items)
            last_id = self._take_turn(connection, sum(len(entry.vectors) for entry in fresh))
            unchanged = _unchanged_items(connection, by_path)
            if unchanged.keys() != before.keys():
                raise WriteConflict("another writer stored the same files")
            _replace_items(connection, items)
            _assign_vector_ids(connection, items, last_id)
            present = {by_path[path]: item for path, item in unchanged.items()}
            _update_signatures(connection, present)
            _put_thumbnails(connection, present | items)
            connection.execute("DELETE FROM bad WHERE path = ANY(%s)", (list(by_path),))

        if by_path:
            self.transaction(write)

    def put_bad_files(self, files: Iterable[BadFile]) -> None:
        """Record files that cannot be read, replacing what was on record of them."""
        listed = list(files)

        def write(execute: Execute) -> None:
            for file in listed:
                execute("DELETE FROM items WHERE path = ?", (file.path,))
                if file.signature:
                    execute(
                        "INSERT INTO bad VALUES (?, ?, ?, ?) ON CONFLICT (path) DO UPDATE"
                        " SET size = excluded.size, mtime_ns = excluded.mtime_ns,"
                        " reason = excluded.reason",
                        (file.path, *file.signature, file.reason),
                    )

        self._write(write)

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Store the thumbnail of an item."""
        self._execute(
            "INSERT INTO thumbnails SELECT id, ? FROM items WHERE path = ?"
            " ON CONFLICT (item) DO UPDATE SET webp = excluded.webp",
            (thumbnail, path),
        )

    def update_signature(self, path: str, signature: FileSignature) -> None:
        """Record a new signature of a file whose content is unchanged."""
        self._execute("UPDATE items SET size = ?, mtime_ns = ? WHERE path = ?", (*signature, path))

    def move(self, old: str, new: str, signature: FileSignature) -> None:
        """Record that an item's file has a new path; its vectors stay."""

        def write(execute: Execute) -> None:
            if execute("SELECT 1 FROM items WHERE path = ?", (old,)).fetchone():
                if old != new:
                    execute("DELETE FROM items WHERE path = ?", (new,))
                execute("DELETE FROM bad WHERE path = ?", (new,))
                execute(
                    "UPDATE items SET path = ?, size = ?, mtime_ns = ? WHERE path = ?",
                    (new, *signature, old),
                )

        self._write(write)

    def delete(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; return how many items were deleted."""
        values, in_paths = (self._dialect.as_list(list(paths)),), self._dialect.in_paths

        def write(execute: Execute) -> int:
            execute(f"DELETE FROM bad WHERE path {in_paths}", values)
            return int(execute(f"DELETE FROM items WHERE path {in_paths}", values).rowcount)

        return self._write(write)

    def add_place(self, role: Role, path: str) -> None:
        """Give a path a role."""
        self._execute("INSERT INTO places VALUES (?, ?) ON CONFLICT DO NOTHING", (role, path))

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Take a role from these paths."""
        self._execute(
            f"DELETE FROM places WHERE role = ? AND path {self._dialect.in_paths}",
            (role, self._dialect.as_list(list(paths))),
        )

    def ids(self, after: int = 0) -> Ids:
        """Return the rising ids of all vectors, or of those after an id."""
        return ids_from_rows(
            self.fetch_all("SELECT id FROM numbers WHERE id > ? ORDER BY id", (after,))
        )

    def vector_counts(self, last_id: int) -> tuple[int, int]:
        """Count the vectors with ids up to this one, and those with higher ids."""
        earlier, later = self._fetch_one(
            "SELECT count(*) FILTER (WHERE id <= ?), count(*) FILTER (WHERE id > ?) FROM numbers",
            (last_id, last_id),
        )
        return earlier, later

    def find_damage(self) -> Iterator[str]:
        """Yield a sentence for each damaged part of the library."""
        for path, fault in self._without_vectors():
            yield f"{path}: {fault}: `polyglance library repair` indexes the file again"
        for path, fault in self._damaged_vectors():
            yield f"{path}: {fault}: `polyglance library repair` indexes the file again"

    def damaged_paths(self) -> list[str]:
        """Return the files whose vectors are damaged or missing."""
        without = [path for path, _ in self._without_vectors()]
        return sorted({*without, *(path for path, _ in self._damaged_vectors())})

    def _damaged_vectors(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the fault of each damaged vector."""
        last = (-1, -1)
        while rows := self.fetch_all(
            "SELECT item, part, vector, checksum, path, numbers.id FROM vectors"
            " LEFT JOIN numbers USING (item, part) LEFT JOIN items ON items.id = item"
            " WHERE (item, part) > (?, ?) ORDER BY item, part LIMIT ?",
            (*last, READ_BLOCK),
        ):
            vectors = self._matrix([row[2] for row in rows])
            lengths = not_unit(vectors)
            for (item, _, _, checksum, path, vector_id), vector, wrong in zip(
                rows, vectors, lengths, strict=True
            ):
                name = path or f"item {item}, which does not exist"
                if vector_id is None:
                    yield name, "a vector has no id"
                if vector_to_bytes(vector)[1] != checksum:
                    yield name, "a vector does not match its checksum"
                elif wrong:
                    yield name, "a vector does not have length 1"
            if tuple(rows[-1][:2]) <= last:
                raise LibraryDamagedError(self._name, "the numbers of its vectors")
            last = tuple(rows[-1][:2])

    def _find_mismatch(self, rows: Sequence[Any]) -> Any:
        vectors = self._matrix([row[4] for row in rows]).astype(FLOAT16)
        return next(
            (
                row
                for row, vector in zip(rows, vectors, strict=True)
                if zlib.crc32(vector.tobytes()) != row[5]
            ),
            None,
        )

    def _write(self, work: Callable[[Execute], T]) -> T:
        def in_turn(connection: Connection) -> T:
            self._take_turn(connection)
            return work(
                lambda statement, values=(): connection.execute(to_placeholders(statement), values)
            )

        return self.transaction(in_turn)

    def _execute(self, statement: str, values: Any) -> None:
        self._write(lambda execute: execute(statement, values))

    def _snapshot(self, work: Callable[[FetchAll], T]) -> T:
        def read(connection: Connection) -> T:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

            def fetch_all(statement: str, values: Any) -> list[Any]:
                return connection.execute(
                    to_placeholders(statement), values, binary=True
                ).fetchall()

            return work(fetch_all)

        return self.transaction(read)

    def _matrix(self, vectors: Sequence[Vector]) -> NDArray[np.float32]:
        width = self.model_info.width
        rows = [vector.to_numpy()[:width] for vector in vectors]
        return np.array(rows, np.float32).reshape(-1, width)


def _unchanged_items(connection: Connection, by_path: dict[str, Entry]) -> dict[str, int]:
    """Return the ids of items that are on record with the same content, by path."""
    rows = connection.execute(
        "SELECT path, id, content FROM items WHERE path = ANY(%s)", (list(by_path),)
    )
    return {
        path: item
        for path, item, content_hash in rows
        if content_hash == by_path[path].item.content_hash
    }


def _new_item_ids(connection: Connection, count: int) -> list[int]:
    rows = connection.execute("SELECT nextval('item_ids') FROM generate_series(1, %s)", (count,))
    return [item for (item,) in rows]


def _copy_vectors(connection: Connection, items: dict[Entry, int]) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY vectors (item, part, start, stop, vector, checksum) FROM STDIN (FORMAT BINARY)"
        ) as copy,
    ):
        copy.set_types(["int8", "int4", "float8", "float8", "vector", "int8"])
        for entry, item in items.items():
            spans = entry.spans or [(None, None)] * len(entry.vectors)
            parts = zip(spans, entry.vectors, strict=True)
            for part, ((start, stop), vector) in enumerate(parts):
                content, checksum = vector_to_bytes(vector)
                rounded = to_pgvector(np.frombuffer(content, FLOAT16))
                copy.write_row((item, part, start, stop, rounded, checksum))


def _replace_items(connection: Connection, items: dict[Entry, int]) -> None:
    """Insert items, deleting what was on record of their paths."""
    rows = [(item, *item_to_row(entry.item)) for entry, item in items.items()]
    if rows:
        paths = [entry.item.path for entry in items]
        connection.execute("DELETE FROM items WHERE path = ANY(%s)", (paths,))
        connection.execute(
            f"INSERT INTO items (id, {ITEM_COLUMNS}) SELECT * FROM {_ITEM_ARRAYS}",
            [list(column) for column in zip(*rows, strict=True)],
        )


def _assign_vector_ids(connection: Connection, items: dict[Entry, int], last_id: int) -> None:
    parts = [(item, part) for entry, item in items.items() for part in range(len(entry.vectors))]
    connection.execute(
        "INSERT INTO numbers SELECT %s + place, item, part FROM"
        " unnest(%s::bigint[], %s::integer[]) WITH ORDINALITY AS given (item, part, place)",
        (last_id, [item for item, _ in parts], [part for _, part in parts]),
    )


def _update_signatures(connection: Connection, items: dict[Entry, int]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE items SET size = %s, mtime_ns = %s WHERE id = %s",
            [(*entry.item.signature, item) for entry, item in items.items()],
        )


def _put_thumbnails(connection: Connection, items: dict[Entry, int]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO thumbnails VALUES (%s, %s)"
            " ON CONFLICT (item) DO UPDATE SET webp = excluded.webp",
            [(item, entry.thumbnail) for entry, item in items.items() if entry.thumbnail],
        )
