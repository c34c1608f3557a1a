"""A library in one SQLite file.

The file is in WAL mode: readers do not wait, writers take turns, and a killed process leaves
the last committed transaction. Vectors are float16, each with a checksum, since SQLite has
none of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from polyglance.search.serialization import (
    FLOAT16,
    ITEM_COLUMNS,
    READ_BLOCK,
    ids_from_rows,
    item_to_row,
    vector_fault,
    vector_to_bytes,
)
from polyglance.search.sql_store import Dialect, Execute, FetchAll, SqlStore
from polyglance.search.sqlite_connection import SqliteConnection
from polyglance.search.store import Entry, Ids

T = TypeVar("T")
_IN_LIST = "IN (SELECT value FROM json_each(?))"


class SqliteStore(SqliteConnection, SqlStore):
    """A `Store` in a file; threads and processes may share it."""

    _dialect = Dialect(
        id_table="vectors",
        vectors="vectors",
        vector_order="id",
        in_paths=_IN_LIST,
        in_ids=_IN_LIST,
        # CROSS keeps SQLite's planner from starting with the items.
        among_ids="(SELECT value FROM json_each(?)) AS near"
        " CROSS JOIN vectors ON vectors.id = near.value CROSS",
        as_list=json.dumps,
    )

    def put(self, entries: Iterable[Entry]) -> None:
        """Store items; what is on record of their paths is replaced where it differs."""
        with self._transaction() as execute:
            for entry in entries:
                self._put(execute, entry)

    def _put(self, execute: Execute, entry: Entry) -> None:
        item = entry.item
        execute("DELETE FROM bad WHERE path = ?", (item.path,))
        same = execute(
            "SELECT id FROM items WHERE path = ? AND content = ?", (item.path, item.content_hash)
        ).fetchone()
        if same:  # another process stored it meanwhile
            item_id = same[0]
            execute(
                "UPDATE items SET size = ?, mtime_ns = ? WHERE id = ?", (*item.signature, item_id)
            )
        else:
            execute("DELETE FROM items WHERE path = ?", (item.path,))
            item_id = execute(
                f"INSERT INTO items ({ITEM_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                item_to_row(item),
            ).lastrowid
            spans = entry.spans or [(None, None)] * len(entry.vectors)
            for (start, stop), vector in zip(spans, entry.vectors, strict=True):
                execute(
                    "INSERT INTO vectors (item, start, stop, vector, checksum)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (item_id, start, stop, *vector_to_bytes(vector)),
                )
        if entry.thumbnail:
            execute("INSERT OR REPLACE INTO thumbnails VALUES (?, ?)", (item_id, entry.thumbnail))

    def ids(self, after: int = 0) -> Ids:
        """Return the rising ids of all vectors, or of those after an id."""
        # The index is a hundredth of the table's size.
        rows = self.fetch_all(
            "SELECT id FROM vectors INDEXED BY vectors_by_item WHERE id > ?", (after,)
        )
        return np.sort(ids_from_rows(rows))

    def vector_counts(self, last_id: int) -> tuple[int, int]:
        """Count the vectors with ids up to this one, and those with higher ids."""
        [total] = self._fetch_one("SELECT count(*) FROM vectors")
        later = total
        if last_id > 0:  # by primary key, which is quick when few are higher
            [later] = self._fetch_one("SELECT count(*) FROM vectors WHERE id > ?", (last_id,))
        return total - later, later

    def find_damage(self) -> Iterator[str]:
        """Yield a sentence for each damaged part of the library."""
        for (message,) in self.fetch_all("PRAGMA integrity_check"):
            if message != "ok":
                yield f"the file is damaged: {message}"
        for table, row, parent, _ in self.fetch_all("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} refers to a missing row of {parent}"
        yield from self._items_without_vectors()
        last = -1
        while rows := self.fetch_all(
            "SELECT vectors.id, vector, checksum, path FROM vectors"
            " LEFT JOIN items ON items.id = item WHERE vectors.id > ? ORDER BY vectors.id LIMIT ?",
            (last, READ_BLOCK),
        ):
            for _, content, checksum, path in rows:
                if fault := vector_fault(content, checksum, self.model_info.width):
                    yield f"{path}: {fault}"
            last = rows[-1][0]

    def _write(self, work: Callable[[Execute], T]) -> T:
        with self._transaction() as execute:
            return work(execute)

    def _snapshot(self, work: Callable[[FetchAll], T]) -> T:
        with self._lock:
            return work(self.fetch_all)

    def _matrix(self, vectors: Sequence[bytes]) -> NDArray[np.float32]:
        width = self.model_info.width
        size = width * FLOAT16.itemsize
        if any(len(vector) != size for vector in vectors):
            # Damage: such a vector becomes zero, so that the others can still be searched.
            vectors = [vector if len(vector) == size else bytes(size) for vector in vectors]
        return np.frombuffer(b"".join(vectors), FLOAT16).reshape(-1, width).astype(np.float32)
