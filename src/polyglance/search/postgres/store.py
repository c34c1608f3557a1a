"""A library on PostgreSQL with pgvector: any number of machines write and search it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from polyglance.search.postgres.database import Connection
from polyglance.search.postgres.writing import PostgresWriting
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
    ITEM,
    fault,
    halved,
    item_of,
    numbers,
)

LARGEST = np.iinfo(np.int64).max


class PostgresStore(PostgresWriting):
    """A `Store` in a database; safe to use from several threads and processes."""

    @property
    def manifest(self) -> Manifest:
        """Which model the vectors are of."""
        return self._manifest

    def known(self, paths: Sequence[str]) -> dict[str, Known]:
        """What is on record of these files."""
        rows = self.ask(
            "SELECT path, size, mtime_ns, NULL, item IS NOT NULL FROM items"
            " LEFT JOIN thumbnails ON thumbnails.item = items.id WHERE path = ANY(%(paths)s)"
            " UNION ALL"
            " SELECT path, size, mtime_ns, reason, false FROM bad WHERE path = ANY(%(paths)s)",
            {"paths": list(paths)},
        )
        return {
            path: Known(Stamp(size, time), reason, small)
            for path, size, time, reason, small in rows
        }

    def holding(self, content: str) -> list[Item]:
        """Items whose files had this content, no more than a few dozen."""
        rows = self.ask(
            f"SELECT {ITEM} FROM items WHERE content = %s ORDER BY id LIMIT 64", (content,)
        )
        return [item_of(row) for row in rows]

    def entry(self, path: str) -> Entry | None:
        """An item with its vectors."""
        return next(iter(self._entries("path = %s", (path,))), None)

    def entries(self) -> Iterator[Entry]:
        """All items with their vectors, in the order of their paths."""
        last = ""
        while block := self._entries("path > %s ORDER BY path LIMIT 256", (last,)):
            yield from block
            last = block[-1].item.path

    def _entries(self, which: str, values: Sequence[Any]) -> list[Entry]:
        def read(connection: Connection) -> list[Entry]:
            # What somebody deletes meanwhile is there to the end.
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

            def rows(statement: str, values: Any) -> list[Any]:
                return connection.execute(statement, values, binary=True).fetchall()

            items = rows(f"SELECT id, {ITEM} FROM items WHERE {which}", values)
            ids = ([row[0] for row in items],)
            parts: dict[int, list[Any]] = {number: [] for number in ids[0]}
            for item, *part in rows(
                "SELECT item, start, stop, vector FROM vectors WHERE item = ANY(%s)"
                " ORDER BY item, part",
                ids,
            ):
                parts[item].append(part)
            small = dict(rows("SELECT item, webp FROM thumbnails WHERE item = ANY(%s)", ids))
            return [
                Entry(
                    item_of(row),
                    self._matrix([vector for _, _, vector in parts[number]]),
                    tuple((start, stop) for start, stop, _ in parts[number] if start is not None),
                    small.get(number),
                )
                for number, *row in items
            ]

        return self.transaction(read)

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Files on record, bad ones included, in order."""
        last, (clause, values) = "", below(folder)
        while True:
            rows = self.ask(
                f"SELECT path FROM items WHERE path > %s AND {clause}"
                f" UNION SELECT path FROM bad WHERE path > %s AND {clause} ORDER BY path LIMIT %s",
                (last, *values, last, *values, BLOCK),
            )
            yield from (path for (path,) in rows)
            if len(rows) < BLOCK:
                return
            last = rows[-1][0]

    def bad(self, folder: str | None = None) -> list[BadFile]:
        """Files that could not be read."""
        clause, values = below(folder)
        rows = self.ask(
            f"SELECT path, reason, size, mtime_ns FROM bad WHERE {clause} ORDER BY path", values
        )
        return [BadFile(path, reason, Stamp(size, time)) for path, reason, size, time in rows]

    def places(self, role: Role) -> list[str]:
        """Folders that are walked, or what is left out."""
        rows = self.ask("SELECT path FROM places WHERE role = %s ORDER BY path", (role,))
        return [path for (path,) in rows]

    def ids(self, after: int = 0) -> Ids:
        """The numbers of all vectors, rising; only those that are higher than one."""
        return numbers(self.ask("SELECT id FROM numbers WHERE id > %s ORDER BY id", (after,)))

    def vector_counts(self, number: int) -> tuple[int, int]:
        """How many vectors have numbers up to this one, and how many higher ones."""
        earlier, later = self._one(
            "SELECT count(*) FILTER (WHERE id <= %(number)s),"
            " count(*) FILTER (WHERE id > %(number)s) FROM numbers",
            {"number": number},
        )
        return earlier, later

    def rows_after(self, number: int) -> Iterator[Rows]:
        """The vectors with higher numbers, in blocks."""
        while rows := self.ask(
            "SELECT id, item, vector FROM numbers JOIN vectors USING (item, part)"
            " WHERE id > %s ORDER BY id LIMIT %s",
            (number, BLOCK),
        ):
            yield self.rows_of(rows)
            number = rows[-1][0]

    def rows(self, ids: Ids) -> Rows:
        """The vectors with these numbers, in rising order; those that are gone are left out."""
        return self.rows_of(
            self.ask(
                "SELECT id, item, vector FROM numbers JOIN vectors USING (item, part)"
                " WHERE id = ANY(%s::bigint[]) ORDER BY id",
                (ids.tolist(),),
            )
        )

    def matching(self, wanted: Filter, among: Ids | None = None) -> Ids:
        """The numbers of the vectors of matching items, rising; only of those among some."""
        clause, values = condition(wanted)
        if among is not None:
            clause, values = (
                f"{clause} AND numbers.id = ANY(%s::bigint[])",
                [*values, among.tolist()],
            )
        return numbers(
            self.ask(
                "SELECT numbers.id FROM numbers JOIN items ON items.id = numbers.item"
                f" WHERE {clause} ORDER BY numbers.id",
                values,
            )
        )

    def found(self, ids: Sequence[int]) -> dict[int, tuple[Item, Span | None]]:
        """The items that vectors belong to, and the spans of those of clips."""
        rows = self.ask(
            f"SELECT numbers.id, start, stop, {ITEM} FROM numbers JOIN vectors USING (item, part)"
            " JOIN items ON items.id = item WHERE numbers.id = ANY(%s::bigint[])"
            " ORDER BY numbers.id",
            ([int(number) for number in ids if 0 < number <= LARGEST],),
        )
        return {
            number: (item_of(item), None if start is None else (start, stop))
            for number, start, stop, *item in rows
        }

    def thumbnail(self, path: str) -> bytes | None:
        """A small WebP of an item, where there is one."""
        row = self._one(
            "SELECT webp FROM thumbnails JOIN items ON items.id = item WHERE path = %s", (path,)
        )
        return row[0] if row else None

    def counts(self) -> Counts:
        """How much there is."""
        return Counts(
            *self._one(
                "SELECT (SELECT count(*) FROM items WHERE kind = 'picture'),"
                " (SELECT count(*) FROM items WHERE kind = 'clip'),"
                " (SELECT count(*) FROM numbers), (SELECT count(*) FROM thumbnails),"
                " (SELECT count(*) FROM bad)"
            )
        )

    def damage(self) -> Iterator[str]:
        """A sentence for each thing that is not as it was written."""
        for (path,) in self.ask(
            "SELECT path FROM items WHERE NOT EXISTS (SELECT FROM vectors WHERE item = items.id)"
            " ORDER BY path"
        ):
            yield f"{path}: has no vector"
        last = (0, -1)
        while rows := self.ask(
            "SELECT item, part, vector, checksum, path, numbers.id FROM vectors"
            " LEFT JOIN numbers USING (item, part) LEFT JOIN items ON items.id = item"
            " WHERE (item, part) > (%s, %s) ORDER BY item, part LIMIT %s",
            (*last, BLOCK),
        ):
            for item, _, vector, checksum, path, number in rows:
                name = path or f"item {item}, which is not there"
                if number is None:
                    yield f"{name}: a vector has no number"
                content, _ = halved(self._matrix([vector])[0])
                if wrong := fault(content, checksum, self.manifest.width):
                    yield f"{name}: {wrong}"
            last = rows[-1][:2]

    def rows_of(self, found: Sequence[Any]) -> Rows:
        """Rows from numbers, items and vectors."""
        vectors = self._matrix([row[2] for row in found])
        return Rows(numbers(found), numbers([row[1:] for row in found]), vectors)

    def _matrix(self, vectors: Sequence[Vector]) -> NDArray[np.float32]:
        width = self.manifest.width
        rows = [vector.to_numpy()[:width] for vector in vectors]
        return np.array(rows, np.float32).reshape(-1, width)


def below(folder: str | None) -> tuple[str, list[Any]]:
    """A condition on ``path``, by its index: it is in the folder, or is it."""
    if folder is None:
        return "true", []
    inside = folder.rstrip("/")
    # "0" comes right after "/".
    return "(path = %s OR (path > %s AND path < %s))", [folder, f"{inside}/", f"{inside}0"]


def condition(wanted: Filter | None) -> tuple[str, list[Any]]:
    """What a filter says of ``items``, by their indices."""
    clauses, values = ["true"], list[Any]()
    if wanted is None:
        return clauses[0], values
    if wanted.folders is not None:
        parts = [below(folder) for folder in wanted.folders]
        clauses.append("(" + (" OR ".join(clause for clause, _ in parts) or "false") + ")")
        values += [value for _, given in parts for value in given]
    if wanted.kind is not None:
        clauses.append("kind = %s")
        values.append(wanted.kind)
    if wanted.since is not None:
        clauses.append("taken >= %s")
        values.append(wanted.since)
    if wanted.until is not None:
        # "~" comes after all that a date is written with.
        clauses.append("taken < %s")
        values.append(f"{wanted.until}~")
    return " AND ".join(clauses), values
