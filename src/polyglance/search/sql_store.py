"""The SQL that the SQLite and the PostgreSQL store share.

Statements are written with ``?`` for values. What differs between the two databases is in
`polyglance.search.sql_dialect`, in the few abstract methods of `SqlStore`, and in what each
store adds to it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import printable
from polyglance.search.row_checksums import matches
from polyglance.search.serialization import (
    READ_BLOCK,
    ids_from_rows,
    item_from_row,
    not_unit,
)
from polyglance.search.sql_browsing import BrowsingQueries
from polyglance.search.sql_conditions import filter_condition, path_condition
from polyglance.search.sql_details import FetchAll
from polyglance.search.store import (
    BadFile,
    Counts,
    Entry,
    FileRecord,
    FileSignature,
    Filter,
    Ids,
    Item,
    LibraryDamagedError,
    ModelInfo,
    Role,
    Span,
    VectorRows,
)

T = TypeVar("T")

MAX_ID = np.iinfo(np.int64).max
_ENTRY_BLOCK = 256
"""Entries read at a time."""
_MAX_COPIES = 64
"""Items returned for one content hash."""


class SqlStore(BrowsingQueries):
    """The part of a `polyglance.search.store.Store` that is the same in every SQL database."""

    _model_info: ModelInfo

    @abstractmethod
    def _fetch_one(self, statement: str, values: Any = ()) -> Any:
        """Return the first row of a query, or None."""

    @abstractmethod
    def _snapshot(self, work: Callable[[FetchAll], T]) -> T:
        """Run queries that must not see another writer's changes in between."""

    @abstractmethod
    def _matrix(self, vectors: Sequence[Any]) -> NDArray[np.float32]:
        """Stack values of the column ``vector``: float32 ``[len(vectors), width]``."""

    @abstractmethod
    def _find_mismatch(self, rows: Sequence[Any]) -> Any:
        """Return the first row of `vector_columns` that does not match its checksum, or None."""

    def _item(self, row: Sequence[Any]) -> Item:
        """Convert a row of the dialect's columns of items, which must match its checksum."""
        if not matches("items", tuple(row[:-1]), row[-1]):
            raise LibraryDamagedError(self._name, f"item {row[0]} does not match its checksum")
        return item_from_row(row[1:-3])

    @property
    def model_info(self) -> ModelInfo:
        """The model that made the vectors."""
        return self._model_info

    def records(self, paths: Sequence[str]) -> dict[str, FileRecord]:
        """Return what is on record of these files, by path; unknown files are left out."""
        values, in_paths = (self._dialect.as_list(list(paths)),), self._dialect.in_paths
        rows = self.fetch_all(
            f"SELECT {self._dialect.item_columns} FROM items WHERE path {in_paths}", values
        )
        records = {
            item.path: FileRecord(item.signature, None, bool(row[-2]))
            for row, item in ((row, self._item(row)) for row in rows)
        }
        for bad in self._bad_files(f"path {in_paths}", values):
            if bad.signature:
                records[bad.path] = FileRecord(bad.signature, bad.reason)
        return records

    def items_with_content(self, content_hash: str) -> list[Item]:
        """Return items whose files had this content, a few dozen at most."""
        rows = self.fetch_all(
            f"SELECT {self._dialect.item_columns} FROM items WHERE content = ? ORDER BY id LIMIT ?",
            (content_hash, _MAX_COPIES),
        )
        return [self._item(row) for row in rows]

    def entry(self, path: str) -> Entry | None:
        """Return an item with its vectors."""
        return next(iter(self._entries("path = ?", (path,))), None)

    def entries(self) -> Iterator[Entry]:
        """Yield all items with their vectors, ordered by path."""
        last = ""
        while block := self._entries("path > ? ORDER BY path LIMIT ?", (last, _ENTRY_BLOCK)):
            yield from block
            last = self._later(last, block[-1].item.path)

    def items_after(self, path: str, limit: int, *, offset: int = 0) -> list[tuple[int, Item]]:
        """Return items after a path, by path, each with the id of its first vector."""
        return self._items_with_ids(
            "path > ? ORDER BY path LIMIT ? OFFSET ?", (path, limit, offset)
        )

    def item_at(self, path: str) -> tuple[int, Item] | None:
        """Return the item of a file with the id of its first vector; None if there is none."""
        return next(iter(self._items_with_ids("path = ?", (path,))), None)

    def _items_with_ids(self, condition: str, values: Any) -> list[tuple[int, Item]]:
        table = self._dialect.id_table
        rows = self.fetch_all(
            f"SELECT (SELECT min(first.id) FROM {table} AS first WHERE first.item = items.id),"
            f" {self._dialect.item_columns} FROM items WHERE {condition}",
            values,
        )
        if any(row[0] is None for row in rows):
            raise LibraryDamagedError(self._name, "an item has no vectors")
        return [(row[0], self._item(row[1:])) for row in rows]

    def _entries(self, condition: str, values: Sequence[Any]) -> list[Entry]:
        dialect = self._dialect

        def read(fetch_all: FetchAll) -> list[Entry]:
            items = fetch_all(
                f"SELECT id, {dialect.item_columns} FROM items WHERE {condition}", values
            )
            ids = (dialect.as_list([row[0] for row in items]),)
            parts = defaultdict[int, list[Any]](list)
            rows = fetch_all(
                f"SELECT {self.vector_columns} FROM {dialect.vectors} WHERE item {dialect.in_ids}"
                f" ORDER BY item, {dialect.vector_order}",
                ids,
            )
            vectors = self._checked_matrix(rows)
            for place, row in enumerate(rows):
                parts[row[1]].append(place)
            thumbnails = self._thumbnails(fetch_all, ids)
            details = self._read_details(fetch_all, ids)
            return [
                Entry(
                    self._item(row),
                    vectors[parts[item]],
                    tuple(
                        (rows[place][2], rows[place][3])
                        for place in parts[item]
                        if rows[place][2] is not None
                    ),
                    thumbnails.get(item),
                    details.get(item),
                )
                for item, *row in items
            ]

        return self._snapshot(read)

    def _thumbnails(self, fetch_all: FetchAll, ids: Sequence[Any]) -> dict[int, bytes]:
        rows = fetch_all(
            f"SELECT item, webp, checksum FROM thumbnails WHERE item {self._dialect.in_ids}", ids
        )
        for item, webp, checksum in rows:
            if not matches("thumbnails", (item, webp), checksum):
                raise LibraryDamagedError(self._name, f"the thumbnail of item {item}")
        return {item: webp for item, webp, _ in rows}

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Yield the paths on record in order, bad files included; all, or those in a folder."""
        last, (condition, values) = "", path_condition(folder)
        while True:
            rows = self.fetch_all(
                f"SELECT path FROM items WHERE path > ? AND {condition} UNION"
                f" SELECT path FROM bad WHERE path > ? AND {condition} ORDER BY path LIMIT ?",
                (last, *values, last, *values, READ_BLOCK),
            )
            yield from (self._path(path) for (path,) in rows)
            if len(rows) < READ_BLOCK:
                return
            last = self._later(last, rows[-1][0])

    def bad_files(self, folder: str | None = None) -> list[BadFile]:
        """Return the files that could not be read; all, or those in a folder."""
        condition, values = path_condition(folder)
        return self._bad_files(f"{condition} ORDER BY path", values)

    def _bad_files(self, condition: str, values: Sequence[Any]) -> list[BadFile]:
        rows = self.fetch_all(
            f"SELECT path, size, mtime_ns, reason, checksum FROM bad WHERE {condition}", values
        )
        for *row, checksum in rows:
            if not matches("bad", tuple(row), checksum):
                name = printable(str(row[0]))
                raise LibraryDamagedError(self._name, f"what is on record of {name}")
        return [
            BadFile(path, reason, FileSignature(size, time)) for path, size, time, reason, _ in rows
        ]

    def places(self, role: Role) -> list[str]:
        """Return the paths that have a role."""
        rows = self.fetch_all("SELECT role, path, checksum FROM places ORDER BY path")
        if not all(matches("places", tuple(row[:2]), row[2]) for row in rows):
            raise LibraryDamagedError(self._name, "the list of its folders")
        return [path for other, path, _ in rows if other == role]

    def rows_after(self, last_id: int) -> Iterator[VectorRows]:
        """Yield the vectors with higher ids, in blocks."""
        while rows := self.fetch_all(
            f"SELECT {self.vector_columns} FROM {self._dialect.vectors} WHERE id > ?"
            " ORDER BY id LIMIT ?",
            (last_id, READ_BLOCK),
        ):
            block = self.vector_rows(rows)
            if (np.diff(block.ids, prepend=last_id) <= 0).any():
                raise LibraryDamagedError(self._name, "the numbers of its vectors")
            yield block
            last_id = rows[-1][0]

    def rows(self, ids: Ids) -> VectorRows:
        """Return the vectors with these ids, by rising id; deleted ones are left out."""
        return self.vector_rows(
            self.fetch_all(
                f"SELECT {self.vector_columns} FROM {self._dialect.vectors}"
                f" WHERE id {self._dialect.in_ids} ORDER BY id",
                (self._dialect.as_list(ids.tolist()),),
            )
        )

    def ids_of_items(self, items: Ids) -> Ids:
        """Return the rising ids of the vectors of these items."""
        return self.fetch_ids(
            f"SELECT id FROM {self._dialect.id_table} WHERE item {self._dialect.in_ids}"
            " ORDER BY id",
            (self._dialect.as_list(items.tolist()),),
        )

    def matching_ids(self, where: Filter, among: Ids | None = None) -> Ids:
        """Return the rising ids of vectors whose items match; all, or only those among some."""
        table = self._dialect.id_table
        condition, values = filter_condition(where)
        source = table
        if among is not None:  # starts from the ids, however many items there are
            source = self._dialect.among_ids
            values = [self._dialect.as_list(among.tolist()), *values]
        return self.fetch_ids(
            f"SELECT {table}.id AS id FROM {source} JOIN items ON items.id = {table}.item"
            f" WHERE {condition} ORDER BY {table}.id",
            values,
        )

    def lookup(self, ids: Sequence[int]) -> dict[int, tuple[Item, Span | None]]:
        """Return the item of each vector, and its span if it is part of a clip."""
        table = self._dialect.id_table
        rows = self.fetch_all(
            f"SELECT {self.vector_columns}, {self._dialect.item_columns}"
            f" FROM {self._dialect.vectors} JOIN items ON items.id = item"
            f" WHERE {table}.id {self._dialect.in_ids} ORDER BY {table}.id",
            (self._dialect.as_list([int(number) for number in ids if 0 < number <= MAX_ID]),),
        )
        self._checked_matrix(rows)
        return {
            row[0]: (self._item(row[6:]), None if row[2] is None else (row[2], row[3]))
            for row in rows
        }

    def thumbnail(self, path: str) -> bytes | None:
        """Return the thumbnail of an item (WebP), if there is one."""
        row = self._fetch_one(
            "SELECT thumbnail, item, webp, thumbnails.checksum FROM items"
            " LEFT JOIN thumbnails ON items.id = item WHERE path = ?",
            (path,),
        )
        if row is None or row[0] == 0:
            return None
        if not matches("thumbnails", tuple(row[1:3]), row[3]):
            raise LibraryDamagedError(self._name, f"the thumbnail of {printable(path)}")
        return bytes(row[2])

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

    @property
    def id_table(self) -> str:
        """The table whose ``id`` and ``item`` are those of vectors."""
        return self._dialect.id_table

    @property
    def vector_columns(self) -> str:
        """The columns of a vector that `vector_rows` takes."""
        table = self._dialect.id_table
        return f"{table}.id, item, start, stop, vector, {table}.checksum"

    def vector_rows(self, rows: Sequence[Any]) -> VectorRows:
        """Convert rows of `vector_columns`, none of which may be damaged."""
        vectors = self._checked_matrix(rows)
        return VectorRows(ids_from_rows(rows), ids_from_rows([row[1:] for row in rows]), vectors)

    def _checked_matrix(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        """Return the vectors of rows of `vector_columns`: float32 ``[len(rows), width]``."""
        if (row := self._find_mismatch(rows)) is not None:
            raise LibraryDamagedError(self._name, f"vector {row[0]} does not match its checksum")
        vectors = self._matrix([row[4] for row in rows])
        if (faults := not_unit(vectors)).any():
            row = rows[int(np.argmax(faults))]
            raise LibraryDamagedError(self._name, f"vector {row[0]} does not have length 1")
        return vectors

    def _later(self, last: str, path: object) -> str:
        """Return a path that follows the last in order; damage must not lead in circles."""
        if not isinstance(path, str) or path <= last:
            raise LibraryDamagedError(self._name, "the order of its paths")
        return path
