"""What one library holds, taken into another."""

from __future__ import annotations

from collections.abc import Iterable

from polyglance.search.store import Entry, Store
from polyglance.search.walking import is_within

BATCH = 256
"""Items that are written together."""


def take_in(store: Store, theirs: Store) -> int:
    """Take in what another store of the same model holds; how many items were new.

    What both have of a file stays as it is here, and what was removed here stays out.
    """
    before, left_out = store.counts(), store.places("left out")
    for batch in _blocks(theirs.entries()):
        known = store.known([entry.item.path for entry in batch])
        here = {path for path, record in known.items() if record.bad is None}
        store.put(
            entry
            for entry in batch
            if entry.item.path not in here
            and not any(is_within(entry.item.path, out) for out in left_out)
        )
    for place in theirs.places("walked"):
        store.add_place("walked", place)
    after = store.counts()
    return after.pictures + after.clips - before.pictures - before.clips


def _blocks(entries: Iterable[Entry]) -> Iterable[list[Entry]]:
    block: list[Entry] = []
    for entry in entries:
        block.append(entry)
        if len(block) == BATCH:
            yield block
            block = []
    if block:
        yield block
