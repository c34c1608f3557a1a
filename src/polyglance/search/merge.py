"""Merge one library into another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyglance.search.scan import is_within
from polyglance.search.store import EXCLUDED, SCANNED, Entry, Store

BATCH_SIZE = 256
"""Items written together."""


def merge_into(store: Store, other: Store, folders: Sequence[str]) -> int:
    """Add the items of another store, whose vectors of pictures can be compared with its own.

    Files that both have stay as they are in ``store``, and files that were removed from it
    stay out.

    Args:
        store: The store to add to.
        other: The store to copy from.
        folders: Those of the other's scanned folders that are added, too.

    Returns:
        The number of items that are new.
    """
    before, excluded = store.counts(), store.places(EXCLUDED)
    for batch in _batches(other.entries()):
        records = store.records([entry.item.path for entry in batch])
        present = {path for path, record in records.items() if record.error is None}
        store.put(
            entry
            for entry in batch
            if entry.item.path not in present
            and not any(is_within(entry.item.path, path) for path in excluded)
        )
    for folder in other.places(SCANNED):
        if folder in folders:
            store.add_place(SCANNED, folder)
    after = store.counts()
    return after.pictures + after.clips - before.pictures - before.clips


def _batches(entries: Iterable[Entry]) -> Iterable[list[Entry]]:
    batch: list[Entry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == BATCH_SIZE:
            yield batch
            batch = []
    if batch:
        yield batch
