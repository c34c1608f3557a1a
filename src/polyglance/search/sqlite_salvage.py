"""Copy what can still be read of a damaged library into a new file.

The rows that match their checksums are copied, with their ids: those that SQLite finds, and if
pages are damaged also those that only a look at every page finds (`sqlite_pages`). Nothing is
written to the damaged file.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from polyglance.errors import DataError, printable
from polyglance.search import sqlite_pages
from polyglance.search.row_checksums import COLUMNS, COUNTED, KEYS, matches, row_checksum
from polyglance.search.salvage import Salvage
from polyglance.search.serialization import FLOAT16, model_info_from_rows
from polyglance.search.sqlite_connection import (
    APPLICATION_ID,
    connect,
    is_manifest_sound,
    write_manifest,
)
from polyglance.search.sqlite_schema import check_schema
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.sqlite_totals import IN_LIST, Total, read_totals, write_total
from polyglance.search.store import FORMAT, ModelInfo

ID_GAP = 1 << 20
"""Ids that are skipped where it is not known which were given; none may be used again."""
_MAX_COMBINATIONS = 4096
_UNREADABLE = (sqlite3.Error, DataError, UnicodeDecodeError, OverflowError, MemoryError)
"""What reading a damaged file raises; SQLite's messages may have text that is not UTF-8."""

Row = tuple[Any, ...]


def salvage(path: Path, target: Path) -> Salvage:
    """Copy what can be read of a damaged library.

    Args:
        path: The damaged file.
        target: The file to create.

    Returns:
        What was copied and what was not.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        copy = Path(folder) / "copy"
        _copy_with_header(path, copy)
        with closing(connect(copy)) as connection:
            connection.text_factory = lambda text: text.decode(errors="surrogateescape")
            version, sound = _examine(connection)
            info = _model_info(connection, copy, printable(str(path)))
            info = info and replace(info, format=FORMAT)
            if info is None:
                raise DataError(
                    f"{printable(str(path))}: nothing says which model made it, if it is a library:"
                    " it stays as it is; restore a backup, or index into another file"
                )
            totals = _old_totals(connection)
            counts = (
                {table: total.count for table, total in totals.items()}
                if totals
                else _old_counts(connection, version)
                if sound
                else None
            )
            store = SqliteStore(target, info)
            try:
                with store._transaction() as execute:
                    write_manifest(execute, info)
                    for table in COUNTED:
                        for row, checksum in _table_rows(connection, table, version):
                            _insert(execute, table, row, checksum)
                    if not sound and version != 1:
                        for table, row, checksum in _page_rows(copy):
                            _insert(execute, table, row, checksum)
                    result = _drop_incomplete(execute, info, counts)
                    for table in COUNTED:
                        _write_total(execute, connection, table, totals)
            finally:
                store.close()
    return result


def _copy_with_header(path: Path, copy: Path) -> None:
    """Copy a file and its log; the beginning of every library is the same, and so is mended."""
    shutil.copyfile(path, copy)
    log = Path(f"{path}-wal")
    if log.is_file() and log.stat().st_size:
        shutil.copyfile(log, f"{copy}-wal")
        with suppress(*_UNREADABLE), closing(connect(copy)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    content = bytearray(copy.read_bytes()[:100])
    content += bytes(100 - len(content))
    size = copy.stat().st_size
    sqlite_pages.mend_header(content, size, APPLICATION_ID)
    with copy.open("r+b") as file:
        file.write(content)
        file.truncate(size - size % sqlite_pages.PAGE_SIZE)


def _examine(connection: sqlite3.Connection) -> tuple[int, bool]:
    """Return the format, 0 if the tables are not ours, and whether the pages are sound."""
    try:
        schema = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        version = check_schema(schema, "")
        messages = connection.execute("PRAGMA integrity_check(1)").fetchall()
        return version, messages == [("ok",)]
    except _UNREADABLE:
        with suppress(*_UNREADABLE, UnboundLocalError):
            return check_schema(schema, ""), False
        return 0, False


def _model_info(connection: sqlite3.Connection, path: Path, name: str) -> ModelInfo | None:
    """Return the description of the model, from whichever copy of it is sound."""
    candidates: list[list[tuple[Any, Any]]] = []
    for table in ("manifest", "manifest_copy"):
        with suppress(*_UNREADABLE):
            candidates.append(connection.execute(f"SELECT name, value FROM {table}").fetchall())
    for rows in candidates:
        if is_manifest_sound(rows):
            return model_info_from_rows(rows, name, remedy="index again")
    values: defaultdict[str, set[str]] = defaultdict(set)
    for number, row in sqlite_pages.read_rows(path):
        if number is None and len(row) == 2 and all(isinstance(text, str) for text in row):
            values[row[0]].add(row[1])
    names = [*ModelInfo.__dataclass_fields__, "checksum"]
    if all(name in values for name in names):
        choices = product(*(sorted(values[name]) for name in names))
        for choice in islice(choices, _MAX_COMBINATIONS):
            rows = list(zip(names, choice, strict=True))
            if is_manifest_sound(rows):
                return model_info_from_rows(rows, name, remedy="index again")
    for rows in candidates:  # of version 0.1, which had no checksum
        if not any(key == "checksum" for key, _ in rows):
            with suppress(*_UNREADABLE):
                return model_info_from_rows(rows, name, remedy="index again")
    return None


def _old_totals(connection: sqlite3.Connection) -> dict[str, Total] | None:
    with suppress(*_UNREADABLE):
        return read_totals(lambda query: connection.execute(query).fetchall(), "")
    return None


def _old_counts(connection: sqlite3.Connection, version: int) -> dict[str, int] | None:
    """Return the number of rows of each table, if the pages are sound."""
    with suppress(*_UNREADABLE):
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in COUNTED
            if version >= 3 or table != "details"
        }
    return None


def _table_rows(
    connection: sqlite3.Connection, table: str, version: int
) -> Iterator[tuple[Row, int]]:
    """Yield the sound rows of a table that SQLite finds, up to where it stops; from both ends."""
    if not version:
        return
    columns, checksum = [*COLUMNS[table]], "checksum"
    if version == 1:
        checksum = "checksum" if table == "vectors" else "0"
        if table == "items":
            columns[-2:] = (
                "(SELECT count(*) FROM vectors WHERE item = items.id)",
                "EXISTS (SELECT 1 FROM thumbnails WHERE item = items.id)",
            )
    order = {"places": "role {0}, path {0}", "bad": "path {0}"}.get(table, "rowid {0}")
    for direction in ("ASC", "DESC"):
        cursor = connection.cursor()
        try:
            cursor.execute(
                f"SELECT {', '.join(columns)}, {checksum} FROM {table}"
                f" ORDER BY {order.format(direction)}"
            )
            for *values, recorded in cursor:
                row = tuple(values)
                if version == 1:
                    if _is_plausible(table, row, recorded):
                        yield row, row_checksum(table, row)
                elif matches(table, row, recorded):
                    yield row, recorded
            return
        except _UNREADABLE:
            continue
        finally:
            cursor.close()


def _page_rows(path: Path) -> Iterator[tuple[str, Row, int]]:
    """Yield the rows of all tables that are on any page."""
    sizes: defaultdict[tuple[bool, int], list[str]] = defaultdict(list)
    for table in COUNTED:
        sizes[table in KEYS, len(COLUMNS[table]) + 1].append(table)
    for number, values in sqlite_pages.read_rows(path):
        for table in sizes.get((number is not None, len(values)), ()):
            row = tuple(values[:-1]) if number is None else (number, *values[1:-1])
            reals = {"vectors": (2, 3), "items": (9,), "details": (2, 3)}.get(table, ())
            # SQLite stores 2.0 as 2, and turns it back by the type of the column.
            row = tuple(
                float(value) if place in reals and isinstance(value, int) else value
                for place, value in enumerate(row)
            )
            if matches(table, row, values[-1]):
                yield table, row, values[-1]
                break


def _is_plausible(table: str, row: Row, checksum: object) -> bool:
    """Return whether a row of version 0.1, which had few checksums, can be one."""
    texts = {"items": (1, 2, 5, 6), "bad": (0, 3), "places": (0, 1)}.get(table, ())
    numbers = {"items": (0, 3, 4, 7, 8), "vectors": (0, 1), "thumbnails": (0,), "bad": (1, 2)}
    try:
        for place in texts:
            row[place].encode()
        return (
            all(isinstance(row[place], int) for place in numbers.get(table, ()))
            and (table != "items" or row[2] in ("picture", "clip"))
            and (table != "vectors" or zlib.crc32(row[4]) == checksum)
            and (table != "thumbnails" or isinstance(row[1], bytes))
        )
    except (AttributeError, UnicodeEncodeError, TypeError):
        return False


def _insert(execute: Callable[..., Any], table: str, row: Row, checksum: int) -> None:
    names, marks = ", ".join(COLUMNS[table]), "?, " * len(row)
    with suppress(sqlite3.IntegrityError, UnicodeEncodeError):
        execute(
            f"INSERT OR IGNORE INTO {table} ({names}, checksum) VALUES ({marks}?)",
            (*row, checksum),
        )


def _drop_incomplete(
    execute: Callable[..., Any], info: ModelInfo, old: dict[str, int] | None
) -> Salvage:
    """Delete what belongs to nothing, and items that do not have all their vectors.

    Args:
        execute: Runs a statement on the new file.
        info: The model.
        old: How many rows each table had, if that is known.

    Returns:
        What is left.
    """
    execute("DELETE FROM vectors WHERE length(vector) != ?", (info.width * FLOAT16.itemsize,))
    incomplete = execute(
        "SELECT id, path FROM items WHERE parts = 0"
        " OR parts != (SELECT count(*) FROM vectors WHERE item = items.id)"
    ).fetchall()
    listed = (json.dumps([item for item, _ in incomplete]),)
    execute(f"DELETE FROM items WHERE id {IN_LIST}", listed)
    for table in ("vectors", "thumbnails", "details"):
        execute(f"DELETE FROM {table} WHERE item NOT IN (SELECT id FROM items)")
    execute("DELETE FROM bad WHERE path IN (SELECT path FROM items)")
    names = ", ".join(COLUMNS["items"])
    bare = execute(
        f"SELECT {names} FROM items WHERE thumbnail AND id NOT IN (SELECT item FROM thumbnails)"
    ).fetchall()
    for row in bare:
        checksum = row_checksum("items", (*row[:-1], 0))
        execute("UPDATE items SET thumbnail = 0, checksum = ? WHERE id = ?", (checksum, row[0]))
    counts = {table: execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in COUNTED}
    return Salvage(
        counts["items"],
        tuple(sorted(path for _, path in incomplete)),
        tuple(sorted(row[1] for row in bare)),
        old is not None
        and old["items"] == counts["items"] + len(incomplete)
        and all(old[table] == counts[table] for table in ("bad", "places")),
        bool(bare or counts["thumbnails"] or (old and old["thumbnails"])),
    )


def _write_total(
    execute: Callable[..., Any],
    damaged: sqlite3.Connection,
    table: str,
    totals: dict[str, Total] | None,
) -> None:
    count, checksums = execute(
        f"SELECT count(*), coalesce(sum(checksum), 0) FROM {table}"
    ).fetchone()
    last = 0
    if table in ("items", "vectors"):
        given = [execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]]
        with suppress(*_UNREADABLE):
            given += [
                number
                for (number,) in damaged.execute(
                    "SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)
                )
                if isinstance(number, int) and 0 < number < 1 << 53
            ]
        last = max(given) + ID_GAP if totals is None else max(max(given), totals[table].last)
    write_total(execute, table, Total(count, checksums, last))
