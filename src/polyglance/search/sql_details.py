"""Read the details of items, the same in every SQL database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from polyglance.errors import printable
from polyglance.search.row_checksums import COLUMNS, matches
from polyglance.search.serialization import READ_BLOCK, details_from_row
from polyglance.search.sql_dialect import Dialect
from polyglance.search.store import Details, LibraryDamagedError

FetchAll: TypeAlias = Callable[[str, Any], list[Any]]

DETAIL_COLUMNS = ", ".join(f"details.{name}" for name in (*COLUMNS["details"], "checksum"))
"""The columns of ``details`` that `DetailsQueries._details` takes."""


class DetailsQueries(ABC):
    """The details of items: where and with what they were taken, and what they say."""

    _dialect: Dialect

    @abstractmethod
    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """The library's name for display."""

    def _ensure_sound(self, *, write: bool = False) -> None:  # noqa: B027 (a server needs none)
        """Check once what is read by index and not by row."""

    def _path(self, path: str) -> str:
        """Return a path as it is; no file has one with a null byte, at which systems balk."""
        if "\0" in path:
            raise LibraryDamagedError(self._name, f"no file has the path {printable(path)}")
        return path

    def _read_details(self, fetch_all: FetchAll, ids: Sequence[Any]) -> dict[int, Details]:
        rows = fetch_all(
            f"SELECT {DETAIL_COLUMNS} FROM details WHERE item {self._dialect.in_ids}", ids
        )
        return {row[0]: self._details(row) for row in rows}

    def details(self, paths: Sequence[str]) -> dict[str, Details]:
        """Return the details of these items, by path; items without any are left out."""
        self._ensure_sound()
        rows = self.fetch_all(
            f"SELECT path, {DETAIL_COLUMNS} FROM items JOIN details ON items.id = item"
            f" WHERE path {self._dialect.in_paths}",
            (self._dialect.as_list(list(paths)),),
        )
        return {path: self._details(row) for path, *row in rows}

    def all_details(self) -> Iterator[tuple[int, str, Details]]:
        """Yield id, path and details of all items that have some, by rising id."""
        self._ensure_sound()
        last = 0
        while rows := self.fetch_all(
            f"SELECT path, {DETAIL_COLUMNS} FROM details JOIN items ON items.id = item"
            " WHERE item > ? ORDER BY item LIMIT ?",
            (last, READ_BLOCK),
        ):
            for path, *row in rows:
                if not isinstance(path, str) or row[0] <= last:
                    raise LibraryDamagedError(self._name, "the order of its details")
                last = row[0]
                yield last, path, self._details(row)

    def _details(self, row: Sequence[Any]) -> Details:
        """Convert a row of `DETAIL_COLUMNS`, which must match its checksum."""
        if not matches("details", tuple(row[:-1]), row[-1]):
            what = f"the details of item {printable(str(row[0]))}"
            raise LibraryDamagedError(self._name, what)
        return details_from_row(row[1:-1])
