"""The SQL that the SQLite and the PostgreSQL store share.

Statements are written with ``?`` for values. What differs between the two databases is in
`Dialect`, in the few abstract methods of `SqlStore`, and in what each store adds to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyglance.search.serialization import (
    ITEM_COLUMNS,
    READ_BLOCK,
    ids_from_rows,
    item_from_row,
)
from polyglance.search.store import (
    BadFile,
    Counts,
    Entry,
    FileRecord,
    FileSignature,
    Filter,
    Ids,
    Item,
    ModelInfo,
    Role,
    Span,
    VectorRows,
)

T = TypeVar("T")
Execute: TypeAlias = Callable[..., Any]
"""Runs a statement with values inside a transaction; returns its cursor."""
FetchAll: TypeAlias = Callable[[str, Any], list[Any]]

MAX_ID = np.iinfo(np.int64).max
_ENTRY_BLOCK = 256
"""Entries read at a time."""
_MAX_COPIES = 64
"""Items returned for one content hash."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two databases write differently."""

    id_table: str
    """The table whose ``id`` and ``item`` are those of vectors."""
    vectors: str
    """A FROM clause with the columns id, item, start, stop and vector."""
    vector_order: str
    """The column of ``vectors`` that orders the vectors of an item."""
    in_paths: str
    in_ids: str
    """A condition that a value is in a list."""
    among_ids: str
    """A FROM clause of the rows of ``id_table`` with listed ids, up to the join with items."""
    as_list: Callable[[list[Any]], Any]
    """Converts a list to the value that these conditions take."""


class SqlStore(ABC):
    """The part of a `polyglance.search.store.Store` that is the same in every SQL database."""

    _dialect: Dialect
    _model_info: ModelInfo

    @abstractmethod
    def _fetch_one(self, statement: str, values: Any = ()) -> Any:
        """Return the first row of a query, or None."""

    @abstractmethod
    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""

    @abstractmethod
    def _write(self, work: Callable[[Execute], T]) -> T:
        """Run `work` in one write transaction; it may be called more than once."""

    @abstractmethod
    def _snapshot(self, work: Callable[[FetchAll], T]) -> T:
        """Run queries that must not see another writer's changes in between."""

    @abstractmethod
    def _matrix(self, vectors: Sequence[Any]) -> NDArray[np.float32]:
        """Stack values of the column ``vector``: float32 ``[len(vectors), width]``."""

    @property
    def model_info(self) -> ModelInfo:
        """The model that made the vectors."""
        return self._model_info

    def records(self, paths: Sequence[str]) -> dict[str, FileRecord]:
        """Return what is on record of these files, by path; unknown files are left out."""
        values = self._dialect.as_list(list(paths))
        rows = self.fetch_all(
            "SELECT path, size, mtime_ns, NULL, item IS NOT NULL FROM items"
            f" LEFT JOIN thumbnails ON item = items.id WHERE path {self._dialect.in_paths}"
            " UNION ALL SELECT path, size, mtime_ns, reason, false FROM bad"
            f" WHERE path {self._dialect.in_paths}",
            (values, values),
        )
        return {
            path: FileRecord(FileSignature(size, time), error, bool(thumbnail))
            for path, size, time, error, thumbnail in rows
        }

    def items_with_content(self, content_hash: str) -> list[Item]:
        """Return items whose files had this content, a few dozen at most."""
        rows = self.fetch_all(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE content = ? ORDER BY id LIMIT ?",
            (content_hash, _MAX_COPIES),
        )
        return [item_from_row(row) for row in rows]

    def entry(self, path: str) -> Entry | None:
        """Return an item with its vectors."""
        return next(iter(self._entries("path = ?", (path,))), None)

    def entries(self) -> Iterator[Entry]:
        """Yield all items with their vectors, ordered by path."""
        last = ""
        while block := self._entries("path > ? ORDER BY path LIMIT ?", (last, _ENTRY_BLOCK)):
            yield from block
            last = block[-1].item.path

    def _entries(self, condition: str, values: Sequence[Any]) -> list[Entry]:
        dialect = self._dialect

        def read(fetch_all: FetchAll) -> list[Entry]:
            items = fetch_all(f"SELECT id, {ITEM_COLUMNS} FROM items WHERE {condition}", values)
            ids = (dialect.as_list([row[0] for row in items]),)
            parts = defaultdict[int, list[Any]](list)
            for item, *part in fetch_all(
                f"SELECT item, start, stop, vector FROM vectors WHERE item {dialect.in_ids}"
                f" ORDER BY item, {dialect.vector_order}",
                ids,
            ):
                parts[item].append(part)
            thumbnails = dict(
                fetch_all(f"SELECT item, webp FROM thumbnails WHERE item {dialect.in_ids}", ids)
            )
            return [
                Entry(
                    item_from_row(row),
                    self._matrix([vector for _, _, vector in parts[item]]),
                    tuple((start, stop) for start, stop, _ in parts[item] if start is not None),
                    thumbnails.get(item),
                )
                for item, *row in items
            ]

        return self._snapshot(read)

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

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Yield the paths on record in order, bad files included; all, or those in a folder."""
        last, (condition, values) = "", path_condition(folder)
        while True:
            rows = self.fetch_all(
                f"SELECT path FROM items WHERE path > ? AND {condition} UNION"
                f" SELECT path FROM bad WHERE path > ? AND {condition} ORDER BY path LIMIT ?",
                (last, *values, last, *values, READ_BLOCK),
            )
            yield from (path for (path,) in rows)
            if len(rows) < READ_BLOCK:
                return
            last = rows[-1][0]

    def bad_files(self, folder: str | None = None) -> list[BadFile]:
        """Return the files that could not be read; all, or those in a folder."""
        condition, values = path_condition(folder)
        rows = self.fetch_all(
            f"SELECT path, reason, size, mtime_ns FROM bad WHERE {condition} ORDER BY path", values
        )
        return [
            BadFile(path, reason, FileSignature(size, time)) for path, reason, size, time in rows
        ]

    def places(self, role: Role) -> list[str]:
        """Return the paths that have a role."""
        rows = self.fetch_all("SELECT path FROM places WHERE role = ? ORDER BY path", (role,))
        return [path for (path,) in rows]

    def add_place(self, role: Role, path: str) -> None:
        """Give a path a role."""
        self._execute("INSERT INTO places VALUES (?, ?) ON CONFLICT DO NOTHING", (role, path))

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Take a role from these paths."""
        self._execute(
            f"DELETE FROM places WHERE role = ? AND path {self._dialect.in_paths}",
            (role, self._dialect.as_list(list(paths))),
        )

    def rows_after(self, last_id: int) -> Iterator[VectorRows]:
        """Yield the vectors with higher ids, in blocks."""
        while rows := self.fetch_all(
            f"SELECT id, item, vector FROM {self._dialect.vectors} WHERE id > ?"
            " ORDER BY id LIMIT ?",
            (last_id, READ_BLOCK),
        ):
            yield self.vector_rows(rows)
            last_id = rows[-1][0]

    def rows(self, ids: Ids) -> VectorRows:
        """Return the vectors with these ids, by rising id; deleted ones are left out."""
        return self.vector_rows(
            self.fetch_all(
                f"SELECT id, item, vector FROM {self._dialect.vectors}"
                f" WHERE id {self._dialect.in_ids} ORDER BY id",
                (self._dialect.as_list(ids.tolist()),),
            )
        )

    def matching_ids(self, where: Filter, among: Ids | None = None) -> Ids:
        """Return the rising ids of vectors whose items match; all, or only those among some."""
        table = self._dialect.id_table
        condition, values = filter_condition(where)
        source = table
        if among is not None:  # starts from the ids, however many items there are
            source = self._dialect.among_ids
            values = [self._dialect.as_list(among.tolist()), *values]
        return ids_from_rows(
            self.fetch_all(
                f"SELECT {table}.id FROM {source} JOIN items ON items.id = {table}.item"
                f" WHERE {condition} ORDER BY {table}.id",
                values,
            )
        )

    def lookup(self, ids: Sequence[int]) -> dict[int, tuple[Item, Span | None]]:
        """Return the item of each vector, and its span if it is part of a clip."""
        table = self._dialect.id_table
        rows = self.fetch_all(
            f"SELECT {table}.id, start, stop, {ITEM_COLUMNS} FROM {self._dialect.vectors}"
            f" JOIN items ON items.id = item WHERE {table}.id {self._dialect.in_ids}"
            f" ORDER BY {table}.id",
            (self._dialect.as_list([int(number) for number in ids if 0 < number <= MAX_ID]),),
        )
        return {
            number: (item_from_row(item), None if start is None else (start, stop))
            for number, start, stop, *item in rows
        }

    def thumbnail(self, path: str) -> bytes | None:
        """Return the thumbnail of an item (WebP), if there is one."""
        row = self._fetch_one(
            "SELECT webp FROM thumbnails JOIN items ON items.id = item WHERE path = ?", (path,)
        )
        return row[0] if row else None

    def counts(self) -> Counts:
        """Count what the library holds."""
        return Counts(
            *self._fetch_one(
                "SELECT count(*) FILTER (WHERE kind = 'picture'),"
                " count(*) FILTER (WHERE kind = 'clip'),"
                f" (SELECT count(*) FROM {self._dialect.id_table}),"
                " (SELECT count(*) FROM thumbnails), (SELECT count(*) FROM bad) FROM items"
            )
        )

    def vector_rows(self, rows: Sequence[Any]) -> VectorRows:
        """Convert rows of id, item and vector."""
        vectors = self._matrix([row[2] for row in rows])
        return VectorRows(ids_from_rows(rows), ids_from_rows([row[1:] for row in rows]), vectors)

    def _items_without_vectors(self) -> Iterator[str]:
        for (path,) in self.fetch_all(
            "SELECT path FROM items WHERE NOT EXISTS"
            " (SELECT 1 FROM vectors WHERE item = items.id) ORDER BY path"
        ):
            yield f"{path}: has no vector"

    def _execute(self, statement: str, values: Any) -> None:
        self._write(lambda execute: execute(statement, values))


def path_condition(folder: str | None) -> tuple[str, list[Any]]:
    """Return an indexable condition that ``path`` is the folder or lies in it, with its values."""
    if folder is None:
        return "true", []
    inside = folder.rstrip("/")
    # "0" comes right after "/" in ASCII.
    return "(path = ? OR (path > ? AND path < ?))", [folder, f"{inside}/", f"{inside}0"]


def filter_condition(where: Filter | None) -> tuple[str, list[Any]]:
    """Return a filter as an indexable condition on ``items``, with its values."""
    conditions, values = ["true"], list[Any]()
    if where is None:
        return conditions[0], values
    if where.folders is not None:
        parts = [path_condition(folder) for folder in where.folders]
        conditions.append("(" + (" OR ".join(condition for condition, _ in parts) or "false") + ")")
        values += [value for _, folder_values in parts for value in folder_values]
    if where.kind is not None:
        conditions.append("kind = ?")
        values.append(where.kind)
    if where.since is not None:
        conditions.append("taken >= ?")
        values.append(where.since)
    if where.until is not None:
        # "~" comes after every character of a date.
        conditions.append("taken < ?")
        values.append(f"{where.until}~")
    return " AND ".join(conditions), values
