"""Filters as conditions on the table of items, the same in every SQL database."""

from __future__ import annotations

from typing import Any

from polyglance.search.store import Filter

_PERIOD = "(taken >= ? AND taken < ?)"


def path_condition(folder: str | None) -> tuple[str, list[Any]]:
    """Return an indexable condition that ``path`` is the folder or lies in it, with its values."""
    if folder is None:
        return "true", []
    inside = folder.rstrip("/")
    # "0" comes right after "/" in ASCII.
    return "(path = ? OR (path > ? AND path < ?))", [folder, f"{inside}/", f"{inside}0"]


def filter_condition(where: Filter | None) -> tuple[str, list[Any]]:
    """Return a filter as an indexable condition on ``items``, with its values."""
    conditions, values = ["true"], list[Any]()
    if where is None:
        return conditions[0], values
    if where.folders is not None:
        parts = [path_condition(folder) for folder in where.folders]
        conditions.append("(" + (" OR ".join(condition for condition, _ in parts) or "false") + ")")
        values += [value for _, folder_values in parts for value in folder_values]
    if where.kind is not None:
        conditions.append("kind = ?")
        values.append(where.kind)
    if where.since is not None:
        conditions.append("taken >= ?")
        values.append(where.since)
    if where.until is not None:
        # "~" comes after every character of a date.
        conditions.append("taken < ?")
        values.append(f"{where.until}~")
    if where.periods is not None:
        conditions.append("(" + (" OR ".join([_PERIOD] * len(where.periods)) or "false") + ")")
        values += [value for first, last in where.periods for value in (first, f"{last}~")]
    for column, names in (("camera", where.cameras), ("place", where.places)):
        if names is not None:
            marks = ", ".join("?" * len(names)) or "NULL"
            conditions.append(f"items.id IN (SELECT item FROM details WHERE {column} IN ({marks}))")
            values += names
    return " AND ".join(conditions), values
