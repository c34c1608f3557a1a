"""Find the items that match a filter in a file whose tables have not been checked as a whole.

A damaged row may match a filter by mistake, or no more; and then nobody reads its checksum. To
verify all items before the first search takes longer than the search. Instead only what the
answer depends on is verified: among given vectors the rows that are read, by their checksums;
among all, the answer itself, which the tables and the indexes must give alike, and the totals.
Bytes that changed in one of them did not change in the same way in the other. What a program
changes in both at once, without the checksums, `polyglance library verify` finds, and a search
if it is among the hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyglance.search.serialization import ids_from_rows
from polyglance.search.sql_conditions import filter_condition
from polyglance.search.sqlite_totals import Total
from polyglance.search.store import Filter, Ids, LibraryDamagedError

FetchAll = Callable[[str, Sequence[Any]], list[Any]]
_PATHS, _TAKEN = "sqlite_autoindex_items_1", "items_by_taken"
_KINDS = frozenset(("picture", "clip"))


def matching_ids(fetch_all: FetchAll, where: Filter, total: Total, library: str) -> Ids:
    """Return the rising ids of vectors whose items match, found twice.

    Args:
        fetch_all: Returns the rows of a query, in one transaction.
        where: The filter.
        total: What the table of items must hold.
        library: The library's name, for error messages.

    Returns:
        The ids; a `LibraryDamagedError` if tables and indexes disagree.
    """
    [[*found]] = fetch_all("SELECT count(*), sum(checksum) FROM items NOT INDEXED", ())
    if found != [total.count, total.sum if total.count else None]:
        raise LibraryDamagedError(library, "rows of items are missing, superfluous or changed")
    condition, values = filter_condition(replace(where, kind=None))  # no index has the kind
    rows = fetch_all(
        "SELECT vectors.id, kind FROM vectors NOT INDEXED"
        f" CROSS JOIN items NOT INDEXED ON items.id = vectors.item WHERE {condition}",
        values,
    )
    query, values = _by_indexes(where)
    try:
        ids, by_indexes = ids_from_rows(rows), ids_from_rows(fetch_all(query, values))
    except (TypeError, ValueError, OverflowError) as error:
        raise LibraryDamagedError(library, "the numbers of its vectors") from error
    if not np.array_equal(np.sort(ids), np.sort(by_indexes)) or {k for _, k in rows} - _KINDS:
        raise LibraryDamagedError(library, "its items and the indexes that find them differ")
    if where.kind is not None:
        ids = ids[np.array([kind == where.kind for _, kind in rows], bool)]
    return np.sort(ids)


def _by_indexes(where: Filter) -> tuple[str, list[Any]]:
    """Return the query of `matching_ids` that reads no table, and its values."""
    parts = []
    if where.folders is not None:
        parts.append((_PATHS, Filter(folders=where.folders)))
    if (where.since, where.until, where.periods) != (None, None, None):
        dates = Filter(since=where.since, until=where.until, periods=where.periods)
        parts.append((_TAKEN, dates))
    queries, values = [], list[Any]()
    for index, part in parts or [(_PATHS, Filter())]:
        condition, part_values = filter_condition(part)
        queries.append(f"SELECT id FROM items INDEXED BY {index} WHERE {condition}")
        values += part_values
    for column, names in (("camera", where.cameras), ("place", where.places)):
        if names is not None:
            marks = ", ".join("?" * len(names)) or "NULL"
            queries.append(
                f"SELECT item FROM details INDEXED BY details_by_{column}"
                f" WHERE {column} IN ({marks})"
            )
            values += names
    return (
        f"SELECT vectors.id FROM ({' INTERSECT '.join(queries)}) AS found"
        " CROSS JOIN vectors INDEXED BY vectors_by_item ON vectors.item = found.id",
        values,
    )
