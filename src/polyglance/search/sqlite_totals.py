"""Write rows with their checksums, and keep the totals of tables, within one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyglance.search.row_checksums import COLUMNS, COUNTED, matches, row_checksum
from polyglance.search.store import LibraryDamagedError

IN_LIST = "IN (SELECT value FROM json_each(?))"
"""A condition that a value is in a JSON list."""


@dataclass(frozen=True, slots=True)
class Total:
    """What a table holds."""

    count: int = 0
    sum: int = 0
    """The sum of its rows' checksums."""
    last: int = 0
    """The highest id ever given; ids are never used again."""


def read_totals(fetch_all: Callable[[str], list[Any]], library: str) -> dict[str, Total]:
    """Return the totals of all tables.

    Args:
        fetch_all: Returns the rows of a query.
        library: The library's name, for error messages.

    Returns:
        The totals by the table's name.
    """
    totals: dict[str, Total] = {}
    for *row, checksum in fetch_all("SELECT name, count, sum, last, checksum FROM totals"):
        if not matches("totals", tuple(row), checksum):
            raise LibraryDamagedError(library, "the totals of its tables")
        totals[row[0]] = Total(*row[1:])
    totals.setdefault("details", Total())  # format 2 has no such table
    if totals.keys() != set(COUNTED):
        raise LibraryDamagedError(library, "the totals of its tables")
    return totals


class Changes:
    """The writes of one transaction; `finish` is its last."""

    def __init__(self, execute: Callable[..., Any], library: str) -> None:
        """Write with ``execute``, which belongs to an open transaction."""
        self._execute = execute
        self._before = read_totals(lambda query: execute(query).fetchall(), library)
        self._totals = dict(self._before)

    def next_id(self, table: str) -> int:
        """Return an id that no row of a table ever had."""
        last = self._totals[table].last + 1
        self._totals[table] = replace(self._totals[table], last=last)
        return last

    def insert(self, table: str, row: Sequence[Any]) -> None:
        """Insert a row of `COLUMNS`."""
        checksum = row_checksum(table, tuple(row))
        names = ", ".join(COLUMNS[table])
        marks = "?, " * len(row)
        self._execute(
            f"INSERT INTO {table} ({names}, checksum) VALUES ({marks}?)", (*row, checksum)
        )
        self._add(table, 1, checksum)

    def delete(self, table: str, condition: str, values: Sequence[Any]) -> int:
        """Delete the rows that match; return how many."""
        count, total = self._execute(
            f"SELECT count(*), coalesce(sum(checksum), 0) FROM {table} WHERE {condition}", values
        ).fetchone()
        if count:
            self._execute(f"DELETE FROM {table} WHERE {condition}", values)
            self._add(table, -count, -total)
        return int(count)

    def delete_items(self, condition: str, values: Sequence[Any]) -> int:
        """Delete the items that match, with all that belongs to them; return how many."""
        ids = self._execute(f"SELECT id FROM items WHERE {condition}", values).fetchall()
        if ids:
            listed = (json.dumps([item for (item,) in ids]),)
            self.delete("vectors", f"item {IN_LIST}", listed)
            self.delete("thumbnails", f"item {IN_LIST}", listed)
            self.delete("details", f"item {IN_LIST}", listed)
            self.delete("items", f"id {IN_LIST}", listed)
        return len(ids)

    def update_item(self, path: str, /, **changes: Any) -> None:
        """Change columns of the item with a path, if there is one."""
        names = COLUMNS["items"]
        found = self._execute(
            f"SELECT {', '.join(names)}, checksum FROM items WHERE path = ?", (path,)
        ).fetchone()
        if found is not None:
            row = tuple((dict(zip(names, found, strict=False)) | changes).values())
            checksum = row_checksum("items", row)
            assigned = ", ".join(f"{name} = ?" for name in names)
            self._execute(
                f"UPDATE items SET {assigned}, checksum = ? WHERE id = ?", (*row, checksum, row[0])
            )
            self._add("items", 0, checksum - found[-1])

    def reserve_ids(self, gap: int) -> None:
        """Skip ids, which may have been given where this library does not know of it."""
        for table in ("items", "vectors"):
            total = self._totals[table]
            self._totals[table] = replace(total, last=total.last + gap)

    def keep_id(self, table: str, given: int) -> None:
        """Remember that an id is in use."""
        total = self._totals[table]
        self._totals[table] = replace(total, last=max(total.last, given))

    def finish(self) -> None:
        """Write the totals that changed."""
        for table, total in self._totals.items():
            if total != self._before[table]:
                write_total(self._execute, table, total)

    def _add(self, table: str, count: int, checksum: int) -> None:
        total = self._totals[table]
        self._totals[table] = replace(total, count=total.count + count, sum=total.sum + checksum)


def write_total(execute: Callable[..., Any], table: str, total: Total) -> None:
    """Write the total of a table, with its checksum."""
    row = (table, total.count, total.sum, total.last)
    values = (*row, row_checksum("totals", row))
    execute("INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?)", values)
