"""Read items in the order of a timeline, the same in every SQL database.

Every query reads an index alone: the ids of 100,000 items take 20 ms of one core, and the rows of
items are read for the pages that somebody looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyglance.search.serialization import ids_from_rows
from polyglance.search.sql_conditions import filter_condition, path_condition
from polyglance.search.sql_details import DetailsQueries
from polyglance.search.store import Bucket, BucketUnit, Facet, Filter, Ids

_PREFIXES: dict[BucketUnit, int] = {"year": 4, "month": 7, "day": 10}
"""How many characters of a date name a unit of time."""
_MAX_FACETS = 500
_IN_FOLDER = (
    "SELECT id FROM items WHERE path = ? UNION ALL SELECT id FROM items WHERE path > ? AND path < ?"
)
"""Takes the values of `path_condition`."""
_HEIGHTS = 1 << 26
"""More than any height, so that width and height fit into one number, which is faster to read."""


class BrowsingQueries(DetailsQueries):
    """Items by date, and how many there are of what."""

    def fetch_ids(self, statement: str, values: Any = ()) -> Ids:
        """Return the column ``id`` of a query."""
        return ids_from_rows(self.fetch_all(statement, values))

    def timeline(self) -> Ids:
        """Return the ids of all items, the newest first."""
        self._ensure_sound()
        return self.fetch_ids("SELECT id FROM items ORDER BY taken DESC, id DESC")

    def shapes(self) -> tuple[Ids, Ids]:
        """Return widths and heights of all items, in the order of `timeline`."""
        self._ensure_sound()
        order = self.timeline()
        # In the order of the table: to read rows by date would take four times as long.
        both = self.fetch_ids(
            f"SELECT CAST(width AS bigint) * {_HEIGHTS} + height AS id FROM items ORDER BY items.id"
        )
        if len(both) == len(order):  # else another process has written meanwhile
            both = both[np.argsort(np.argsort(order))]
        return both // _HEIGHTS, both % _HEIGHTS

    def item_ids(self, where: Filter) -> Ids:
        """Return the ids of the items that match, in any order; of all without conditions."""
        self._ensure_sound()
        found: Ids | None = None
        for statement, values in _parts(where) or [("SELECT id FROM items", [])]:
            ids = self.fetch_ids(statement, values)
            if where.folders is not None and len(where.folders) > 1:  # one may lie in another
                ids = np.unique(ids)
            found = ids if found is None else np.intersect1d(found, ids, assume_unique=True)
        assert found is not None
        return found

    def buckets(self, unit: BucketUnit) -> list[Bucket]:
        """Count the items of each year, month or day that has some, the newest first."""
        self._ensure_sound()
        length = _PREFIXES[unit]
        rows = self.fetch_all(
            # From one to the next by the index of dates, rather than through all items.
            f"WITH RECURSIVE found (bucket) AS (SELECT substr(max(taken), 1, {length}) FROM items"
            f" UNION ALL SELECT (SELECT substr(max(taken), 1, {length}) FROM items"
            " WHERE taken < bucket) FROM found WHERE bucket IS NOT NULL)"
            " SELECT bucket, (SELECT count(*) FROM items WHERE taken >= bucket"
            " AND taken < bucket || '~') FROM found WHERE bucket IS NOT NULL"
        )
        return [Bucket(str(date), int(count)) for date, count in rows]

    def hours_added(self) -> list[tuple[str, int]]:
        """Return the hours (UTC) in which items were added, the last first, with lowest ids."""
        self._ensure_sound()
        rows = self.fetch_all(
            "SELECT substr(added, 1, 13) AS hour, min(item) FROM details WHERE added IS NOT NULL"
            " GROUP BY substr(added, 1, 13) ORDER BY hour DESC"
        )
        return [(str(hour), int(lowest)) for hour, lowest in rows]

    def media_ids(self, items: Sequence[int]) -> dict[int, int]:
        """Return the id of the first vector of each item, by the item's id."""
        dialect = self._dialect
        rows = self.fetch_all(
            f"SELECT item, min(id) FROM {dialect.id_table} WHERE item {dialect.in_ids}"
            " GROUP BY item",
            (dialect.as_list([int(item) for item in items]),),
        )
        return dict(rows)

    def item_of(self, media_id: int) -> int | None:
        """Return the id of the item that a vector belongs to."""
        table = self._dialect.id_table
        found = self.fetch_all(f"SELECT item FROM {table} WHERE id = ?", (media_id,))
        return int(found[0][0]) if found else None

    def item_paths(self) -> list[tuple[int, str]]:
        """Return id and path of all items, ordered by path."""
        self._ensure_sound()
        rows = self.fetch_all("SELECT id, path FROM items ORDER BY path")
        return [(item, self._path(path)) for item, path in rows]

    def facets(self, column: Facet) -> list[tuple[str, int]]:
        """Count the items of each camera or place, the most frequent first."""
        self._ensure_sound()
        rows = self.fetch_all(
            f"SELECT {column}, count(*) FROM details WHERE {column} IS NOT NULL AND {column} <> ''"
            f" GROUP BY {column} ORDER BY count(*) DESC, {column} LIMIT {_MAX_FACETS}"
        )
        return [(str(name), int(count)) for name, count in rows]


def _parts(where: Filter) -> list[tuple[str, list[Any]]]:
    """Return a query for each condition that has an index, with its values."""
    queries: list[tuple[str, list[Any]]] = []
    if where.folders is not None:
        # Each by itself: SQLite reads rows, not the index alone, for what an OR joins.
        folders = [path_condition(folder)[1] for folder in where.folders]
        each = " UNION ALL ".join([_IN_FOLDER] * len(folders))
        statement = each or "SELECT id FROM items WHERE false"
        queries.append((statement, [value for values in folders for value in values]))
    for part in (
        Filter(kind=where.kind),
        Filter(since=where.since, until=where.until, periods=where.periods),
    ):
        if part:
            condition, values = filter_condition(part)
            queries.append((f"SELECT id FROM items WHERE {condition}", values))
    for column, names in (("camera", where.cameras), ("place", where.places)):
        if names is not None:
            marks = ", ".join("?" * len(names)) or "NULL"
            statement = f"SELECT item AS id FROM details WHERE {column} IN ({marks})"
            queries.append((statement, list(names)))
    return queries
