"""A library in one SQLite file.

The file is in WAL mode: readers do not wait, several writers take turns, and whatever
kills a process leaves the last finished transaction. Vectors are float16, each with a
checksum, since SQLite has none of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.search.sqlite_file import Run, SqliteFile
from polyglance.search.store import (
    BadFile,
    Counts,
    Entry,
    Filter,
    Ids,
    Item,
    Known,
    Manifest,
    Role,
    Rows,
    Span,
    Stamp,
)
from polyglance.search.stored import (
    BLOCK,
    HALF,
    ITEM,
    columns_of,
    fault,
    halved,
    item_of,
    numbers,
    plain,
)

_BY_INDEX = "INDEXED BY vectors_by_item"
_NEAR = "(SELECT value FROM json_each(?)) AS near"
_LISTED = "IN (SELECT value FROM json_each(?))"


class SqliteStore(SqliteFile):
    """A `Store` in a file; safe to use from several threads and processes."""

    @property
    def manifest(self) -> Manifest:
        """Which model the vectors are of."""
        return self._manifest

    def known(self, paths: Sequence[str]) -> dict[str, Known]:
        """What is on record of these files."""
        listed = json.dumps(list(paths))
        items = self._all(
            "SELECT path, size, mtime_ns, thumbnails.item IS NOT NULL FROM items"
            " LEFT JOIN thumbnails ON thumbnails.item = items.id"
            f" WHERE path {_LISTED}",
            (listed,),
        )
        bad = self._all(
            f"SELECT path, size, mtime_ns, reason FROM bad WHERE path {_LISTED}",
            (listed,),
        )
        found = {path: Known(Stamp(size, time), reason) for path, size, time, reason in bad}
        return found | {
            path: Known(Stamp(size, time), thumbnail=bool(small))
            for path, size, time, small in items
        }

    def holding(self, content: str) -> list[Item]:
        """Items whose files had this content, no more than a few dozen."""
        rows = self._all(
            f"SELECT {ITEM} FROM items WHERE content = ? ORDER BY id LIMIT 64", (content,)
        )
        return [item_of(row) for row in rows]

    def entry(self, path: str) -> Entry | None:
        """An item with its vectors."""
        with self._lock:
            row = self._one(f"SELECT id, {ITEM} FROM items WHERE path = ?", (path,))
            return self._entry(row) if row else None

    def entries(self) -> Iterator[Entry]:
        """All items with their vectors, in the order of their paths."""
        last = ""
        while True:
            rows = self._all(
                f"SELECT id, {ITEM} FROM items WHERE path > ? ORDER BY path LIMIT ?", (last, 256)
            )
            for row in rows:
                yield self._entry(row)
            if not rows:
                return
            last = rows[-1][1]

    def _entry(self, row: Any) -> Entry:
        parts = self._all(
            "SELECT start, stop, vector FROM vectors WHERE item = ? ORDER BY id", (row[0],)
        )
        small = self._one("SELECT webp FROM thumbnails WHERE item = ?", (row[0],))
        vectors = self._matrix([part[2] for part in parts])
        spans = tuple((start, stop) for start, stop, _ in parts if start is not None)
        return Entry(item_of(row[1:]), vectors, spans, small[0] if small else None)

    def put(self, entries: Iterable[Entry]) -> None:
        """Keep items; what was on record of their paths is replaced where it differs."""
        with self._writing() as run:
            for entry in entries:
                self._put(run, entry)

    def _put(self, run: Run, entry: Entry) -> None:
        item = entry.item
        run("DELETE FROM bad WHERE path = ?", (item.path,))
        same = run(
            "SELECT id FROM items WHERE path = ? AND content = ?", (item.path, item.content)
        ).fetchone()
        if same:  # somebody was quicker
            number = same[0]
            stamp = plain(item.stamp)
            run("UPDATE items SET size = ?, mtime_ns = ? WHERE id = ?", (*stamp, number))
        else:
            run("DELETE FROM items WHERE path = ?", (item.path,))
            number = run(
                f"INSERT INTO items ({ITEM}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", columns_of(item)
            ).lastrowid
            spans = entry.spans or [(None, None)] * len(entry.vectors)
            for (start, stop), vector in zip(spans, entry.vectors, strict=True):
                run(
                    "INSERT INTO vectors (item, start, stop, vector, checksum)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (number, start, stop, *halved(vector)),
                )
        if entry.thumbnail:
            run("INSERT OR REPLACE INTO thumbnails VALUES (?, ?)", (number, entry.thumbnail))

    def put_bad(self, files: Iterable[BadFile]) -> None:
        """Note files that cannot be read, instead of what was on record of them."""
        with self._writing() as run:
            for file in files:
                run("DELETE FROM items WHERE path = ?", (file.path,))
                if file.stamp:
                    row = (file.path, *plain(file.stamp), file.reason)
                    run("INSERT OR REPLACE INTO bad VALUES (?, ?, ?, ?)", row)

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Keep a thumbnail of an item."""
        with self._writing() as run:
            run(
                "INSERT OR REPLACE INTO thumbnails SELECT id, ? FROM items WHERE path = ?",
                (thumbnail, path),
            )

    def touch(self, path: str, stamp: Stamp) -> None:
        """Note that a file has another stamp and the same content."""
        with self._writing() as run:
            run("UPDATE items SET size = ?, mtime_ns = ? WHERE path = ?", (*plain(stamp), path))

    def move(self, old: str, new: str, stamp: Stamp) -> None:
        """Note that an item's file has another path; its vectors stay."""
        with self._writing() as run:
            if run("SELECT 1 FROM items WHERE path = ?", (old,)).fetchone():
                for table in ("items", "bad"):
                    run(f"DELETE FROM {table} WHERE path = ?", (new,))
                run(
                    "UPDATE items SET path = ?, size = ?, mtime_ns = ? WHERE path = ?",
                    (new, *plain(stamp), old),
                )

    def forget(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; how many items that were."""
        count = 0
        with self._writing() as run:
            for path in paths:
                count += run("DELETE FROM items WHERE path = ?", (path,)).rowcount
                run("DELETE FROM bad WHERE path = ?", (path,))
        return count

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Files on record, bad ones included, in order."""
        last, (clause, values) = "", _below(folder)
        while True:
            rows = self._all(
                f"SELECT path FROM items WHERE path > ? AND {clause}"
                f" UNION SELECT path FROM bad WHERE path > ? AND {clause} ORDER BY path LIMIT ?",
                (last, *values, last, *values, BLOCK),
            )
            yield from (path for (path,) in rows)
            if len(rows) < BLOCK:
                return
            last = rows[-1][0]

    def bad(self, folder: str | None = None) -> list[BadFile]:
        """Files that could not be read."""
        clause, values = _below(folder)
        rows = self._all(
            f"SELECT path, reason, size, mtime_ns FROM bad WHERE {clause} ORDER BY path", values
        )
        return [BadFile(path, reason, Stamp(size, time)) for path, reason, size, time in rows]

    def places(self, role: Role) -> list[str]:
        """Folders that are walked, or what is left out."""
        rows = self._all("SELECT path FROM places WHERE role = ? ORDER BY path", (role,))
        return [path for (path,) in rows]

    def add_place(self, role: Role, path: str) -> None:
        """Walk a folder from now on, or leave a file or folder out."""
        with self._writing() as run:
            run("INSERT OR IGNORE INTO places VALUES (?, ?)", (role, path))

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Walk these folders no more, or leave them out no more."""
        with self._writing() as run:
            for path in paths:
                run("DELETE FROM places WHERE role = ? AND path = ?", (role, path))

    def ids(self, after: int = 0) -> Ids:
        """The numbers of all vectors, rising; only those that are higher than one."""
        # By the index, which is a hundredth of the table.
        rows = self._all(f"SELECT id FROM vectors {_BY_INDEX} WHERE id > ?", (after,))
        return np.sort(numbers(rows))

    def vector_counts(self, number: int) -> tuple[int, int]:
        """How many vectors have numbers up to this one, and how many higher ones."""
        [total] = self._one("SELECT count(*) FROM vectors")
        later = total
        if number > 0:  # by the numbers themselves, which is quick where few are higher
            [later] = self._one("SELECT count(*) FROM vectors WHERE id > ?", (number,))
        return total - later, later

    def rows_after(self, number: int) -> Iterator[Rows]:
        """The vectors with higher numbers, in blocks."""
        while True:
            rows = self._all(
                "SELECT id, item, vector FROM vectors WHERE id > ? ORDER BY id LIMIT ?",
                (number, BLOCK),
            )
            if not rows:
                return
            yield self._rows(rows)
            number = rows[-1][0]

    def rows(self, ids: Ids) -> Rows:
        """The vectors with these numbers, in rising order; those that are gone are left out."""
        listed = json.dumps(ids.tolist())
        return self._rows(
            self._all(
                f"SELECT id, item, vector FROM vectors WHERE id {_LISTED} ORDER BY id", (listed,)
            )
        )

    def matching(self, wanted: Filter, among: Ids | None = None) -> Ids:
        """The numbers of the vectors of matching items, rising; only of those among some."""
        source, clauses, values = "vectors", ["1"], list[Any]()
        if among is not None:  # from them to their items, however many items there are
            source = f"{_NEAR} CROSS JOIN vectors ON vectors.id = near.value CROSS"
            values.append(json.dumps(among.tolist()))
        if wanted.folders is not None:
            parts = [_below(folder) for folder in wanted.folders]
            clauses.append(" OR ".join(clause for clause, _ in parts) or "0")
            values += [value for _, given in parts for value in given]
        if wanted.kind is not None:
            clauses.append("kind = ?")
            values.append(wanted.kind)
        if wanted.since is not None:
            clauses.append("taken >= ?")
            values.append(wanted.since)
        if wanted.until is not None:
            clauses.append("substr(taken, 1, ?) <= ?")
            values += [len(wanted.until), wanted.until]
        where = " AND ".join(f"({clause})" for clause in clauses)
        return numbers(
            self._all(
                f"SELECT vectors.id FROM {source} JOIN items ON items.id = vectors.item"
                f" WHERE {where} ORDER BY vectors.id",
                values,
            )
        )

    def found(self, ids: Sequence[int]) -> dict[int, tuple[Item, Span | None]]:
        """The items that vectors belong to, and the spans of those of clips."""
        rows = self._all(
            f"SELECT vectors.id, start, stop, {ITEM} FROM vectors"
            f" JOIN items ON items.id = vectors.item WHERE vectors.id {_LISTED}",
            (json.dumps([int(number) for number in ids]),),
        )
        return {
            number: (item_of(item), None if start is None else (start, stop))
            for number, start, stop, *item in rows
        }

    def thumbnail(self, path: str) -> bytes | None:
        """A small WebP of an item, where there is one."""
        row = self._one(
            "SELECT webp FROM thumbnails JOIN items ON items.id = item WHERE path = ?", (path,)
        )
        return row[0] if row else None

    def counts(self) -> Counts:
        """How much there is."""
        kinds = dict(self._all("SELECT kind, count(*) FROM items GROUP BY kind"))
        others = (
            self._one(f"SELECT count(*) FROM {table}")[0]
            for table in ("vectors", "thumbnails", "bad")
        )
        return Counts(kinds.get("picture", 0), kinds.get("clip", 0), *others)

    def damage(self) -> Iterator[str]:
        """A sentence for each thing that is not as it was written."""
        for (sentence,) in self._all("PRAGMA integrity_check"):
            if sentence != "ok":
                yield f"the file is damaged: {sentence}"
        for table, row, parent, _ in self._all("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} belongs to nothing in {parent}"
        for (path,) in self._all(
            "SELECT path FROM items WHERE id NOT IN (SELECT item FROM vectors) ORDER BY path"
        ):
            yield f"{path}: has no vector"
        last = -1
        while rows := self._all(
            "SELECT vectors.id, vector, checksum, path FROM vectors"
            " LEFT JOIN items ON items.id = item WHERE vectors.id > ? ORDER BY vectors.id LIMIT ?",
            (last, BLOCK),
        ):
            for _, blob, checksum, path in rows:
                if wrong := fault(blob, checksum, self.manifest.width):
                    yield f"{path}: {wrong}"
            last = rows[-1][0]

    def _rows(self, rows: Sequence[Any]) -> Rows:
        vectors = self._matrix([row[2] for row in rows])
        return Rows(numbers(rows), numbers([row[1:] for row in rows]), vectors)

    def _matrix(self, blobs: Sequence[bytes]) -> NDArray[np.float32]:
        width = self.manifest.width
        bytes_each = width * HALF.itemsize
        if any(len(blob) != bytes_each for blob in blobs):
            # Nothing else writes other lengths; the others are still worth finding.
            blobs = [blob if len(blob) == bytes_each else bytes(bytes_each) for blob in blobs]
        return np.frombuffer(b"".join(blobs), HALF).reshape(-1, width).astype(np.float32)


def _below(folder: str | None) -> tuple[str, tuple[str, ...]]:
    """A condition on ``path``, by its index: it is in the folder, or is it."""
    if folder is None:
        return "1", ()
    inside = folder.rstrip("/")
    # "0" comes right after "/".
    return "(path = ? OR (path > ? AND path < ?))", (folder, f"{inside}/", f"{inside}0")
