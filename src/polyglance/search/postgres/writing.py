"""Writing a library on PostgreSQL: each method is a transaction that may be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from polyglance.search.postgres.database import Connection, Overtaken, PostgresDatabase
from polyglance.search.postgres.tables import filled
from polyglance.search.store import BadFile, Entry, Role, Stamp
from polyglance.search.stored import HALF, ITEM, columns_of, halved, plain

_UNNESTED = (
    "unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::text[],"
    " %s::text[], %s::integer[], %s::integer[], %s::float8[])"
)
"""Lists of the numbers and columns of items as rows."""


class PostgresWriting(PostgresDatabase):
    """What writers do."""

    def put(self, entries: Iterable[Entry]) -> None:
        """Keep items; what was on record of their paths is replaced where it differs.

        What takes long comes first and touches nothing that others see or wait for: vectors are
        written for items that come when it is the writer's turn.
        """
        listed = {entry.item.path: entry for entry in entries}

        def write(connection: Connection) -> None:
            known = _same(connection, listed)
            fresh = [entry for path, entry in listed.items() if path not in known]
            items = dict(zip(fresh, _new_items(connection, len(fresh)), strict=True))
            _copy_vectors(connection, items)
            last = self._take_turn(connection, sum(len(entry.vectors) for entry in fresh))
            same = _same(connection, listed)
            if same.keys() != known.keys():
                raise Overtaken("another writer was quicker")
            _replace_items(connection, items)
            _give_numbers(connection, items, last)
            there = {listed[path]: number for path, number in same.items()}
            _note_stamps(connection, there)
            _note_thumbnails(connection, there | items)
            connection.execute("DELETE FROM bad WHERE path = ANY(%s)", (list(listed),))

        if listed:
            self.transaction(write)

    def put_bad(self, files: Iterable[BadFile]) -> None:
        """Note files that cannot be read, instead of what was on record of them."""
        listed = list(files)

        def write(connection: Connection) -> None:
            for file in listed:
                connection.execute("DELETE FROM items WHERE path = %s", (file.path,))
                if file.stamp:
                    connection.execute(
                        "INSERT INTO bad VALUES (%s, %s, %s, %s) ON CONFLICT (path) DO UPDATE SET"
                        " (size, mtime_ns, reason)"
                        " = (excluded.size, excluded.mtime_ns, excluded.reason)",
                        (file.path, *plain(file.stamp), file.reason),
                    )

        self._writing(write)

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Keep a thumbnail of an item."""
        self._write(
            "INSERT INTO thumbnails SELECT id, %s FROM items WHERE path = %s"
            " ON CONFLICT (item) DO UPDATE SET webp = excluded.webp",
            (thumbnail, path),
        )

    def touch(self, path: str, stamp: Stamp) -> None:
        """Note that a file has another stamp and the same content."""
        self._write(
            "UPDATE items SET size = %s, mtime_ns = %s WHERE path = %s", (*plain(stamp), path)
        )

    def move(self, old: str, new: str, stamp: Stamp) -> None:
        """Note that an item's file has another path; its vectors stay."""

        def write(connection: Connection) -> None:
            run = connection.execute
            if run("SELECT 1 FROM items WHERE path = %s", (old,)).fetchone():
                if old != new:
                    run("DELETE FROM items WHERE path = %s", (new,))
                run("DELETE FROM bad WHERE path = %s", (new,))
                run(
                    "UPDATE items SET path = %s, size = %s, mtime_ns = %s WHERE path = %s",
                    (new, *plain(stamp), old),
                )

        self._writing(write)

    def forget(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; how many items that were."""
        listed = list(paths)

        def write(connection: Connection) -> int:
            connection.execute("DELETE FROM bad WHERE path = ANY(%s)", (listed,))
            return connection.execute("DELETE FROM items WHERE path = ANY(%s)", (listed,)).rowcount

        return self._writing(write)

    def add_place(self, role: Role, path: str) -> None:
        """Walk a folder from now on, or leave a file or folder out."""
        self._write("INSERT INTO places VALUES (%s, %s) ON CONFLICT DO NOTHING", (role, path))

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Walk these folders no more, or leave them out no more."""
        self._write("DELETE FROM places WHERE role = %s AND path = ANY(%s)", (role, list(paths)))

    def _write(self, statement: str, values: Any) -> None:
        self._writing(lambda connection: connection.execute(statement, values))


def _same(connection: Connection, listed: dict[str, Entry]) -> dict[str, int]:
    """The numbers of the items that are on record with this content, by their paths."""
    there = connection.execute(
        "SELECT path, id, content FROM items WHERE path = ANY(%s)", (list(listed),)
    )
    return {path: item for path, item, content in there if content == listed[path].item.content}


def _new_items(connection: Connection, count: int) -> list[int]:
    """Numbers of items that are going to be."""
    given = connection.execute("SELECT nextval('item_ids') FROM generate_series(1, %s)", (count,))
    return [number for (number,) in given]


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
                content, checksum = halved(vector)
                rounded = filled(np.frombuffer(content, HALF))
                copy.write_row((item, part, start, stop, rounded, checksum))


def _replace_items(connection: Connection, items: dict[Entry, int]) -> None:
    """Write items, instead of what was on record of their paths."""
    rows = [(number, *columns_of(entry.item)) for entry, number in items.items()]
    if rows:
        paths = [entry.item.path for entry in items]
        connection.execute("DELETE FROM items WHERE path = ANY(%s)", (paths,))
        connection.execute(
            f"INSERT INTO items (id, {ITEM}) SELECT * FROM {_UNNESTED}",
            [list(column) for column in zip(*rows, strict=True)],
        )


def _give_numbers(connection: Connection, items: dict[Entry, int], last: int) -> None:
    parts = [(item, part) for entry, item in items.items() for part in range(len(entry.vectors))]
    connection.execute(
        "INSERT INTO numbers SELECT %s + place, item, part FROM"
        " unnest(%s::bigint[], %s::integer[]) WITH ORDINALITY AS given (item, part, place)",
        (last, [item for item, _ in parts], [part for _, part in parts]),
    )


def _note_stamps(connection: Connection, items: dict[Entry, int]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE items SET size = %s, mtime_ns = %s WHERE id = %s",
            [(*plain(entry.item.stamp), item) for entry, item in items.items()],
        )


def _note_thumbnails(connection: Connection, items: dict[Entry, int]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO thumbnails VALUES (%s, %s)"
            " ON CONFLICT (item) DO UPDATE SET webp = excluded.webp",
            [(item, entry.thumbnail) for entry, item in items.items() if entry.thumbnail],
        )
