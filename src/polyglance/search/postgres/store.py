"""A library on PostgreSQL with pgvector: any number of machines write and search it at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import error as StructError
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from polyglance.search.postgres import checks
from polyglance.search.postgres.database import (
    Connection,
    PostgresDatabase,
    WriteConflict,
    to_placeholders,
)
from polyglance.search.postgres.tables import to_pgvector
from polyglance.search.row_checksums import COLUMNS, matches, number_checksum, row_checksum
from polyglance.search.salvage import Salvage
from polyglance.search.serialization import (
    FLOAT16,
    check_vectors,
    details_to_row,
    ids_from_rows,
    item_to_row,
    utc_now,
    vector_to_bytes,
)
from polyglance.search.sql_details import FetchAll
from polyglance.search.sql_dialect import Dialect
from polyglance.search.sql_store import SqlStore
from polyglance.search.store import (
    BadFile,
    Details,
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
    " %s::text[], %s::integer[], %s::integer[], %s::float8[], %s::integer[], %s::integer[],"
    " %s::bigint[])"
)
"""Rows from arrays of the columns of items, with their checksums."""
_ITEM = ", ".join(COLUMNS["items"])


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
            changes = {}
            for entry, item in present.items():
                size, mtime_ns = map(int, entry.item.signature)
                changes[item] = {"size": size, "mtime_ns": mtime_ns}
                if entry.thumbnail:
                    changes[item]["thumbnail"] = 1
            self._update_items(connection.execute, changes)
            _put_thumbnails(connection.execute, present | items)
            for entry, item in items.items():
                _put_details(connection.execute, item, entry.details or Details(), utc_now())
            connection.execute("DELETE FROM bad WHERE path = ANY(%s)", (list(by_path),))

        if by_path:
            self.transaction(write)

    def put_bad_files(self, files: Iterable[BadFile]) -> None:
        """Record files that cannot be read, replacing what was on record of them."""
        listed = list(files)

        def write(execute: Execute) -> None:
            for file in listed:
                execute("DELETE FROM items WHERE path = %s", (file.path,))
                if file.signature:
                    row = (file.path, *map(int, file.signature), str(file.reason))
                    execute("DELETE FROM bad WHERE path = %s", (file.path,))
                    execute(
                        "INSERT INTO bad VALUES (%s, %s, %s, %s, %s)",
                        (*row, row_checksum("bad", row)),
                    )

        self._write(write)

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Store the thumbnail of an item."""

        def write(execute: Execute) -> None:
            if found := execute("SELECT id FROM items WHERE path = %s", (path,)).fetchone():
                [item] = found
                _put_thumbnail(execute, item, thumbnail)
                self._update_items(execute, {item: {"thumbnail": 1}})

        self._write(write)

    def put_details(self, details: Mapping[str, Details]) -> None:
        """Replace the details of items, by path; paths that are not on record are skipped."""

        def write(execute: Execute) -> None:
            rows = execute(
                "SELECT path, items.id, added FROM items LEFT JOIN details ON items.id = item"
                " WHERE path = ANY(%s)",
                (list(details),),
            ).fetchall()
            for path, item, added in rows:
                execute("DELETE FROM details WHERE item = %s", (item,))
                _put_details(execute, item, details[path], added)

        self._write(write)

    def update_signature(self, path: str, signature: FileSignature) -> None:
        """Record a new signature of a file whose content is unchanged."""
        self.move(path, path, signature)

    def move(self, old: str, new: str, signature: FileSignature) -> None:
        """Record that an item's file has a new path; its vectors stay."""
        size, mtime_ns = map(int, signature)

        def write(execute: Execute) -> None:
            if found := execute("SELECT id FROM items WHERE path = %s", (old,)).fetchone():
                if old != new:
                    execute("DELETE FROM items WHERE path = %s", (new,))
                execute("DELETE FROM bad WHERE path = %s", (new,))
                changes = {"path": new, "size": size, "mtime_ns": mtime_ns}
                self._update_items(execute, {found[0]: changes})

        self._write(write)

    def _update_items(self, execute: Execute, changes: dict[int, dict[str, Any]]) -> None:
        """Change columns of items, by id, with their checksums."""
        rows = execute(
            f"SELECT {_ITEM}, checksum FROM items WHERE id = ANY(%s)", (list(changes),)
        ).fetchall()
        for *found, checksum in rows:
            if not matches("items", tuple(found), checksum):
                raise LibraryDamagedError(
                    self._name, f"item {found[0]} does not match its checksum"
                )
            known = dict(zip(COLUMNS["items"], found, strict=True)) | changes[found[0]]
            execute(
                "UPDATE items SET path = %s, size = %s, mtime_ns = %s, thumbnail = %s,"
                " checksum = %s WHERE id = %s",
                (*(known[name] for name in ("path", "size", "mtime_ns", "thumbnail")),
                 row_checksum("items", tuple(known.values())), found[0]),
            )  # fmt: skip

    def delete(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; return how many items were deleted."""
        values = (list(paths),)

        def write(execute: Execute) -> int:
            execute("DELETE FROM bad WHERE path = ANY(%s)", values)
            return int(execute("DELETE FROM items WHERE path = ANY(%s)", values).rowcount)

        return self._write(write)

    def add_place(self, role: Role, path: str) -> None:
        """Give a path a role."""
        row = (role, path)
        self._write(
            lambda execute: execute(
                "INSERT INTO places VALUES (%s, %s, %s) ON CONFLICT (role, path)"
                " DO UPDATE SET checksum = excluded.checksum",
                (*row, row_checksum("places", row)),
            )
        )

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Take a role from these paths."""
        values = (role, list(paths))
        self._write(
            lambda execute: execute("DELETE FROM places WHERE role = %s AND path = ANY(%s)", values)
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
        for damage in checks.find_damage(self, self._name, self.model_info.width):
            yield damage.sentence

    def drop_damage(self) -> Salvage:
        """Delete damaged rows, so that what they were about can be indexed again."""
        damage = list(checks.find_damage(self, self._name, self.model_info.width))
        [thumbnails] = self._fetch_one("SELECT EXISTS (SELECT 1 FROM thumbnails)")

        def write(execute: Execute) -> None:
            checks.drop(execute, damage)
            lost = [item.item for item in damage if item.table == "thumbnails" and item.item]
            self._update_items(execute, {item: {"thumbnail": 0} for item in lost})

        self._write(write)
        counts = self.counts()
        return checks.salvage(damage, counts.pictures + counts.clips, thumbnails=bool(thumbnails))

    def _find_mismatch(self, rows: Sequence[Any]) -> Any:
        vectors = self._matrix([row[4] for row in rows]).astype(FLOAT16)
        try:
            for row, vector in zip(rows, vectors, strict=True):
                number, item, start, stop = row[:4]
                checksum = zlib.crc32(vector.tobytes())
                if number_checksum(number, item, start, stop, checksum) != row[5]:
                    return row
        except (TypeError, ValueError, OverflowError, StructError):
            return row
        return None

    def _write(self, work: Callable[[Execute], T]) -> T:
        def in_turn(connection: Connection) -> T:
            self._take_turn(connection)
            return work(connection.execute)

        return self.transaction(in_turn)

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
                copy.write_row((item, part, *_times((start, stop)), rounded, checksum))


def _replace_items(connection: Connection, items: dict[Entry, int]) -> None:
    """Insert items, deleting what was on record of their paths."""
    rows = [
        (item, *item_to_row(entry.item), len(entry.vectors), int(bool(entry.thumbnail)))
        for entry, item in items.items()
    ]
    if rows:
        paths = [entry.item.path for entry in items]
        connection.execute("DELETE FROM items WHERE path = ANY(%s)", (paths,))
        columns = zip(*((*row, row_checksum("items", row)) for row in rows), strict=True)
        connection.execute(
            f"INSERT INTO items ({_ITEM}, checksum) SELECT * FROM {_ITEM_ARRAYS}",
            [list(column) for column in columns],
        )


def _assign_vector_ids(connection: Connection, items: dict[Entry, int], last_id: int) -> None:
    rows = list[tuple[int, int, int, int]]()
    for entry, item in items.items():
        spans = entry.spans or [(None, None)] * len(entry.vectors)
        for part, (span, vector) in enumerate(zip(spans, entry.vectors, strict=True)):
            number = last_id + len(rows) + 1
            checksum = number_checksum(number, item, *_times(span), vector_to_bytes(vector)[1])
            rows.append((number, item, part, checksum))
    if rows:
        connection.execute(
            "INSERT INTO numbers SELECT * FROM"
            " unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::bigint[])",
            [list(column) for column in zip(*rows, strict=True)],
        )


def _times(span: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    start, stop = (None if time is None else float(time) for time in span)
    return start, stop


def _put_thumbnails(execute: Execute, items: dict[Entry, int]) -> None:
    for entry, item in items.items():
        if entry.thumbnail:
            _put_thumbnail(execute, item, entry.thumbnail)


def _put_details(execute: Execute, item: int, details: Details, added: str | None) -> None:
    row = (item, *details_to_row(details, added))
    marks = ", ".join(["%s"] * (len(row) + 1))
    execute(f"INSERT INTO details VALUES ({marks})", (*row, row_checksum("details", row)))


def _put_thumbnail(execute: Execute, item: int, thumbnail: bytes) -> None:
    row = (item, bytes(thumbnail))
    execute(
        "INSERT INTO thumbnails VALUES (%s, %s, %s) ON CONFLICT (item)"
        " DO UPDATE SET webp = excluded.webp, checksum = excluded.checksum",
        (*row, row_checksum("thumbnails", row)),
    )
