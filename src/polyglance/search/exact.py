"""All vectors in one matrix: a query is compared with each of them.

The matrix is read once a process. As numbers of vectors are never used again and vectors
never change (`polyglance.search.store`), what is on record later is what is in it, less
those that are gone, and those with higher numbers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyglance.search.store import Filter, Ids, Rows, Store

Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """Vectors by their numbers, the best first, with the numbers of their items and scores."""

    ids: Ids
    items: Ids
    scores: Scores

    def __len__(self) -> int:
        return len(self.ids)


class ExactIndex:
    """The vectors of a store, as they were when last refreshed."""

    def __init__(self, store: Store, after: int = 0) -> None:
        """Only those vectors whose numbers are higher than ``after``."""
        self._store, self._after = store, after
        self._revision: Hashable = None
        none, width = np.zeros(0, np.int64), store.manifest.width
        self._rows = Rows(none, none, np.zeros((0, width), np.float32))

    def refresh(self) -> Rows:
        """Read what was written since."""
        revision = self._store.revision()
        if revision != self._revision:
            old, there = self._rows, self._store.ids(self._after)
            last = int(old.ids[-1]) if len(old) else self._after
            kept = np.isin(old.ids, there, assume_unique=True)
            if not kept.all():
                old = _chosen(old, kept)
            self._rows = _with_later(old, self._store, last, int((there > last).sum()))
            self._revision = revision
        return self._rows

    def wanted(self, wanted: Filter | None = None) -> Rows:
        """The vectors of the items that match."""
        rows = self.refresh()
        which = self._which(rows, wanted)
        return rows if which is None else _chosen(rows, which)

    def nearest(
        self, query: Scores, count: int, wanted: Filter | None = None, *, once: bool = True
    ) -> Nearest:
        """The vectors that fit best among those ``wanted``, ``once`` of each item."""
        rows = self.refresh()
        return best(rows, query, count, self._which(rows, wanted), once=once)

    def _which(self, rows: Rows, wanted: Filter | None) -> NDArray[np.bool_] | None:
        if not wanted or not len(rows):
            return None
        return np.isin(rows.ids, self._store.matching(wanted), assume_unique=True)


def best(
    rows: Rows,
    query: Scores,
    count: int,
    which: NDArray[np.bool_] | None = None,
    *,
    once: bool = True,
) -> Nearest:
    """The rows, or only ``which`` of them, whose vectors fit a query best."""
    scores, groups = rows.vectors @ query, rows.items if once else rows.ids
    if which is None:
        chosen = top(scores, groups, count)
    else:  # choosing scores is quicker than choosing vectors
        places = np.flatnonzero(which)
        chosen = places[top(scores[places], groups[places], count)]
    return Nearest(rows.ids[chosen], rows.items[chosen], scores[chosen])


def top(scores: Scores, groups: Ids, count: int) -> NDArray[np.intp]:
    """Where the highest scores are, the highest first, only the first of each group."""
    taken = min(2 * count, len(scores))
    while True:
        some = (
            np.argpartition(-scores, taken - 1)[:taken]
            if taken < len(scores)
            else np.arange(len(scores))
        )
        ordered = some[np.lexsort((some, -scores[some]))]
        firsts = np.sort(np.unique(groups[ordered], return_index=True)[1])[:count]
        if len(firsts) == count or taken == len(scores):
            return ordered[firsts]
        taken = min(4 * taken, len(scores))


def joined(first: Rows, second: Rows) -> Rows:
    """Rows and further rows."""
    return Rows(
        np.concatenate([first.ids, second.ids]),
        np.concatenate([first.items, second.items]),
        np.concatenate([first.vectors, second.vectors]),
    )


def _chosen(rows: Rows, which: NDArray[np.bool_]) -> Rows:
    return Rows(rows.ids[which], rows.items[which], rows.vectors[which])


def _with_later(old: Rows, store: Store, last: int, expected: int) -> Rows:
    """The old rows and those with higher numbers; a writer may have added more than expected."""
    ids, items, vectors = (
        np.concatenate([part, np.zeros((expected, *part.shape[1:]), part.dtype)])
        for part in (old.ids, old.items, old.vectors)
    )
    end = len(old)
    for block in store.rows_after(last):
        room = min(len(block), len(ids) - end)
        ids[end : end + room] = block.ids[:room]
        items[end : end + room] = block.items[:room]
        vectors[end : end + room] = block.vectors[:room]
        end += room
    return Rows(ids[:end], items[:end], vectors[:end])
