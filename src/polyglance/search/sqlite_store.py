"""A library in one SQLite file.

The file is in WAL mode: readers do not wait, writers take turns, and a killed process leaves
the last committed transaction. Vectors are float16. Every row has a checksum, verified when it
is read, and every table a total (`row_checksums`), since SQLite has none of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from struct import error as StructError
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyglance.search import sqlite_check, sqlite_filters
from polyglance.search.row_checksums import matches, vector_checksum
from polyglance.search.serialization import (
    FLOAT16,
    check_vectors,
    details_to_row,
    ids_from_rows,
    item_to_row,
    utc_now,
    vector_to_bytes,
)
from polyglance.search.sql_conditions import filter_condition
from polyglance.search.sql_dialect import Dialect
from polyglance.search.sql_store import SqlStore
from polyglance.search.sqlite_connection import SqliteConnection
from polyglance.search.sqlite_totals import IN_LIST, Changes, Total, read_totals
from polyglance.search.store import (
    BadFile,
    Counts,
    Details,
    Entry,
    FileRecord,
    FileSignature,
    Filter,
    Ids,
    Item,
    LibraryDamagedError,
    Role,
    VectorRows,
)

T = TypeVar("T")


class SqliteStore(SqliteConnection, SqlStore):
    """A `Store` in a file; threads and processes may share it."""

    _dialect = Dialect(
        id_table="vectors",
        vectors="vectors",
        vector_order="id",
        in_paths=IN_LIST,
        in_ids=IN_LIST,
        # CROSS keeps SQLite's planner from starting with the items.
        among_ids="(SELECT value FROM json_each(?)) AS near"
        " CROSS JOIN vectors ON vectors.id = near.value CROSS",
        as_list=json.dumps,
    )
    _is_sound = _may_write = _has_filtered = False

    def put(self, entries: Iterable[Entry]) -> None:
        """Store items; what is on record of their paths is replaced where it differs."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            for entry in entries:
                check_vectors(entry.item.path, entry.vectors)
                self._put(changes, entry)

    def _put(self, changes: Changes, entry: Entry) -> None:
        item = entry.item
        changes.delete("bad", "path = ?", (item.path,))
        same = self._fetch_one(
            "SELECT id FROM items WHERE path = ? AND content = ?", (item.path, item.content_hash)
        )
        if same:  # another process stored it meanwhile
            item_id = same[0]
            size, mtime_ns = item.signature
            changes.update_item(item.path, size=size, mtime_ns=mtime_ns)
        else:
            changes.delete_items("path = ?", (item.path,))
            item_id = changes.next_id("items")
            changes.insert("items", (item_id, *item_to_row(item), len(entry.vectors), 0))
            spans = entry.spans or [(None, None)] * len(entry.vectors)
            for (start, stop), vector in zip(spans, entry.vectors, strict=True):
                span = [None if time is None else float(time) for time in (start, stop)]
                content, _ = vector_to_bytes(vector)
                changes.insert("vectors", (changes.next_id("vectors"), item_id, *span, content))
            row = details_to_row(entry.details or Details(), utc_now())
            changes.insert("details", (item_id, *row))
        if entry.thumbnail:
            self._put_thumbnail(changes, item_id, item.path, entry.thumbnail)

    def put_bad_files(self, files: Iterable[BadFile]) -> None:
        """Record files that cannot be read, replacing what was on record of them."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            for file in files:
                changes.delete_items("path = ?", (file.path,))
                if file.signature:
                    changes.delete("bad", "path = ?", (file.path,))
                    size, mtime_ns = map(int, file.signature)
                    changes.insert("bad", (file.path, size, mtime_ns, str(file.reason)))

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Store the thumbnail of an item."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            item = self._fetch_one("SELECT id FROM items WHERE path = ?", (path,))
            if item:
                self._put_thumbnail(changes, item[0], path, thumbnail)

    @staticmethod
    def _put_thumbnail(changes: Changes, item: int, path: str, thumbnail: bytes) -> None:
        changes.delete("thumbnails", "item = ?", (item,))
        changes.insert("thumbnails", (item, thumbnail))
        changes.update_item(path, thumbnail=1)

    def put_details(self, details: Mapping[str, Details]) -> None:
        """Replace the details of items, by path; paths that are not on record are skipped."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            for path, new in details.items():
                found = self._fetch_one(
                    "SELECT items.id, added FROM items LEFT JOIN details ON items.id = item"
                    " WHERE path = ?",
                    (path,),
                )
                if found:
                    item, added = found
                    changes.delete("details", "item = ?", (item,))
                    changes.insert("details", (item, *details_to_row(new, added)))

    def update_signature(self, path: str, signature: FileSignature) -> None:
        """Record a new signature of a file whose content is unchanged."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            changes.update_item(path, size=int(signature.size), mtime_ns=int(signature.mtime_ns))

    def move(self, old: str, new: str, signature: FileSignature) -> None:
        """Record that an item's file has a new path; its vectors stay."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            if self._fetch_one("SELECT 1 FROM items WHERE path = ?", (old,)):
                if old != new:
                    changes.delete_items("path = ?", (new,))
                changes.delete("bad", "path = ?", (new,))
                size, mtime_ns = map(int, signature)
                changes.update_item(old, path=new, size=size, mtime_ns=mtime_ns)

    def delete(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; return how many items were deleted."""
        self._ensure_sound(write=True)
        values = (json.dumps(list(paths)),)
        with self.changes() as changes:
            changes.delete("bad", f"path {IN_LIST}", values)
            return changes.delete_items(f"path {IN_LIST}", values)

    def places(self, role: Role) -> list[str]:
        """Return the paths that have a role."""
        with self._lock:
            rows = self.fetch_all("SELECT role, path, checksum FROM places ORDER BY path")
            total = self._totals()["places"]
        sums = sum(row[-1] for row in rows if matches("places", row[:2], row[-1]))
        if (len(rows), sums) != (total.count, total.sum):
            raise LibraryDamagedError(self._name, "the list of its folders")
        return [path for other, path, _ in rows if other == role]

    def add_place(self, role: Role, path: str) -> None:
        """Give a path a role."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            changes.delete("places", "role = ? AND path = ?", (role, path))
            changes.insert("places", (role, path))

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Take a role from these paths."""
        self._ensure_sound(write=True)
        with self.changes() as changes:
            changes.delete(
                "places", f"role = ? AND path {IN_LIST}", (role, json.dumps(list(paths)))
            )

    def records(self, paths: Sequence[str]) -> dict[str, FileRecord]:
        """Return what is on record of these files, by path; unknown files are left out."""
        self._ensure_sound()
        return super().records(paths)

    def items_with_content(self, content_hash: str) -> list[Item]:
        """Return items whose files had this content, a few dozen at most."""
        self._ensure_sound()
        return super().items_with_content(content_hash)

    def _items_with_ids(self, condition: str, values: Any) -> list[tuple[int, Item]]:
        self._ensure_sound()
        return super()._items_with_ids(condition, values)

    def bad_files(self, folder: str | None = None) -> list[BadFile]:
        """Return the files that could not be read; all, or those in a folder."""
        self._ensure_sound()
        return super().bad_files(folder)

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Yield the paths on record in order, bad files included; all, or those in a folder."""
        self._ensure_sound()
        return super().paths(folder)

    def matching_ids(self, where: Filter, among: Ids | None = None) -> Ids:
        """Return the rising ids of vectors whose items match; all, or only those among some."""
        if where.cameras is not None or where.places is not None:
            self._ensure_sound()  # rows of details are not verified one by one here
        if not self._is_sound and among is not None:
            return self._matching_among(where, among)
        if not self._is_sound and not self._has_filtered:
            self._has_filtered = True  # from the second on, indexes that were checked are faster
            with self._read_transaction():
                total = self._totals()["items"]
                return sqlite_filters.matching_ids(self.fetch_all, where, total, self._name)
        self._ensure_sound()
        return super().matching_ids(where, among)

    def _matching_among(self, where: Filter, among: Ids) -> Ids:
        """Return those of the vectors whose items match; all rows that are read are verified."""
        condition, values = filter_condition(where)
        rows = self.fetch_all(
            f"SELECT {self.vector_columns}, {self._dialect.item_columns}, {condition}"
            f" FROM {self._dialect.among_ids} JOIN items ON items.id = vectors.item"
            " ORDER BY vectors.id",
            (*values, json.dumps(among.tolist())),
        )
        self._checked_matrix(rows)
        for row in rows:
            self._item(row[6:-1])
        return ids_from_rows([row for row in rows if row[-1]])

    def fetch_ids(self, statement: str, values: Any = ()) -> Ids:
        """Return the column ``id`` of a query."""
        # As one text, which takes a third of the time of as many rows.
        [text] = self._fetch_one(f"SELECT json_group_array(id) FROM ({statement})", values)
        return np.fromstring(text[1:-1], np.int64, sep=",")

    def counts(self) -> Counts:
        """Count what the library holds."""
        self._ensure_sound()
        return super().counts()

    def ids(self, after: int = 0) -> Ids:
        """Return the rising ids of all vectors, or of those after an id."""
        # The index is a hundredth of the table's size; `ExactIndex` compares it with the table.
        rows = self.fetch_all(
            "SELECT id FROM vectors INDEXED BY vectors_by_item WHERE id > ?", (after,)
        )
        try:
            return np.sort(ids_from_rows(rows))
        except (TypeError, ValueError, OverflowError) as error:
            raise LibraryDamagedError(self._name, "the index of its vectors") from error

    def rows_after(self, last_id: int) -> Iterator[VectorRows]:
        """Yield the vectors with higher ids, in blocks; all together they match the total."""
        revision, total, count = self.revision(), self._totals()["vectors"], 0
        for block in super().rows_after(last_id):
            yield block
            count += len(block)
        # Each row has its checksum; another writer may have changed how many there are.
        if last_id <= 0 and count != total.count and self.revision() == revision:
            raise LibraryDamagedError(
                self._name, f"{abs(total.count - count):,} vectors are missing or superfluous"
            )

    def vector_counts(self, last_id: int) -> tuple[int, int]:
        """Count the vectors with ids up to this one, and those with higher ids."""
        total = self._totals()["vectors"].count
        later = total
        if last_id > 0:  # by primary key, which is quick when few are higher
            [later] = self._fetch_one("SELECT count(*) FROM vectors WHERE id > ?", (last_id,))
        return total - later, later

    def find_damage(self) -> Iterator[str]:
        """Yield a sentence for each damaged part of the library."""
        return sqlite_check.find_damage(self, self._name, self.model_info.width)

    def _ensure_sound(self, *, write: bool = False) -> None:
        """Check once what is read by index and not by row; before writing also free pages."""
        if not self._is_sound or (write and not self._may_write and not self.read_only):
            with self._read_transaction():
                sqlite_check.check(self, self._name, write=write)
            self._is_sound, self._may_write = True, self._may_write or write

    @contextmanager
    def _read_transaction(self) -> Iterator[None]:
        """Read what no writer changes in between."""
        with self._lock, self._readable_errors():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    def _totals(self) -> dict[str, Total]:
        return read_totals(self.fetch_all, self._name)

    def _snapshot(self, work: Any) -> Any:
        self._ensure_sound()
        with self._lock:
            return work(self.fetch_all)

    def _find_mismatch(self, rows: Sequence[Any]) -> Any:
        try:
            for row in rows:
                if vector_checksum(row[0], row[1], row[2], row[3], row[4]) != row[5]:
                    return row
        except (TypeError, ValueError, OverflowError, StructError):
            return row
        return None

    def _matrix(self, vectors: Sequence[bytes]) -> NDArray[np.float32]:
        width = self.model_info.width
        if any(len(vector) != width * FLOAT16.itemsize for vector in vectors):
            raise LibraryDamagedError(self._name, f"a vector does not have {width} numbers")
        return np.frombuffer(b"".join(vectors), FLOAT16).reshape(-1, width).astype(np.float32)
