"""Exact search: the query is compared with every vector, all held in one matrix.

The matrix is read once per process. Since ids are never reused and vectors never change
(`polyglance.search.store`), a refresh only drops deleted rows and appends those with higher ids.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.search.store import Filter, Ids, LibraryDamagedError, Store, VectorRows

FloatArray = NDArray[np.float32]
NUM_SAMPLED = 4096
"""Vectors by which the mean and standard deviation of a query's cosines are estimated."""
MIN_DEVIATION = 0.02
"""The smallest standard deviation of cosines by which a `Bonus` is multiplied."""


@dataclass(frozen=True, slots=True, eq=False)
class Bonus:
    """What some items gain over their cosine, in standard deviations of the query's cosines."""

    items: Ids
    """``[n]``, rising."""
    values: FloatArray
    """``[n]``."""

    def of(self, items: Ids) -> FloatArray:
        """Return what each of these items gains, ``[len(items)]``; 0 for most."""
        if not len(self.items) or not len(items):
            return np.zeros(len(items), np.float32)
        highest = int(items.max())
        if highest < 64 * len(items) + 65536:  # a table is much faster than looking each up
            table = np.zeros(highest + 1, np.float32)
            known = self.items <= highest
            table[self.items[known]] = self.values[known]
            return table[items]
        places = np.searchsorted(self.items, items).clip(max=len(self.items) - 1)
        return np.where(self.items[places] == items, self.values[places], np.float32(0))

    def largest(self, count: int) -> Ids:
        """Return the items that gain most, at most ``count``, rising."""
        if len(self.items) <= count:
            return self.items
        return np.sort(self.items[np.argpartition(-self.values, count - 1)[:count]])


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The nearest vectors, best first: ids, ids of their items, and cosines, each ``[n]``."""

    ids: Ids
    items: Ids
    scores: FloatArray
    gains: FloatArray | None = None
    """What a `Bonus` added to each cosine, ``[n]``; the order is that of the sums."""
    cosine_stats: tuple[float, float] | None = None
    """Mean and standard deviation of the query's cosines, if there was a `Bonus`."""

    def __len__(self) -> int:
        return len(self.ids)


class ExactIndex:
    """The vectors of a store as of the last refresh."""

    def __init__(self, store: Store, after: int = 0) -> None:
        """Index the vectors whose ids are higher than ``after``."""
        self._store, self._after = store, after
        self._revision: Hashable = None
        no_ids, width = np.zeros(0, np.int64), store.model_info.width
        self._rows = VectorRows(no_ids, no_ids, np.zeros((0, width), np.float32))

    def refresh(self) -> VectorRows:
        """Read what was written since the last refresh; return all rows."""
        revision = self._store.revision()
        if revision != self._revision:
            old, ids = self._rows, self._store.ids(self._after)
            last_id = int(old.ids[-1]) if len(old) else self._after
            mask = np.isin(old.ids, ids, assume_unique=True)
            if not mask.all():
                old = _select(old, mask)
            rows = _append_later(old, self._store, last_id, int((ids > last_id).sum()))
            if not np.array_equal(rows.ids, ids) and self._store.revision() == revision:
                raise LibraryDamagedError(None, "its vectors are not those that it lists")
            self._rows, self._revision = rows, revision
        return self._rows

    def matching_rows(self, where: Filter | None = None) -> VectorRows:
        """Return the vectors of the items that match."""
        rows = self.refresh()
        mask = self._mask(rows, where)
        return rows if mask is None else _select(rows, mask)

    def search(
        self,
        query: FloatArray,
        k: int,
        where: Filter | None = None,
        *,
        one_per_item: bool = True,
        bonus: Bonus | None = None,
    ) -> Neighbors:
        """Return the ``k`` best vectors; see `polyglance.search.backends.Index.search`."""
        rows = self.refresh()
        mask = self._mask(rows, where)
        return top_rows(rows, query, k, mask, one_per_item=one_per_item, bonus=bonus)

    def _mask(self, rows: VectorRows, where: Filter | None) -> NDArray[np.bool_] | None:
        if not where or not len(rows):
            return None
        return np.isin(rows.ids, self._store.matching_ids(where), assume_unique=True)


def top_rows(
    rows: VectorRows,
    query: FloatArray,
    k: int,
    mask: NDArray[np.bool_] | None = None,
    *,
    one_per_item: bool = True,
    bonus: Bonus | None = None,
    cosine_stats: tuple[float, float] | None = None,
) -> Neighbors:
    """Return the rows with the highest inner product with a query.

    Args:
        rows: ``n`` vectors.
        query: ``[width]``.
        k: How many rows to return at most.
        mask: ``[n]``; only rows where it is true are considered.
        one_per_item: Keep only the best row of each item.
        bonus: What some items gain.
        cosine_stats: Mean and standard deviation of cosines; by default those of ``rows``.

    Returns:
        Up to ``k`` rows, best first.
    """
    if bonus is not None and cosine_stats is None and len(rows):
        sample = rows.vectors[:: max(1, len(rows) // NUM_SAMPLED)] @ query
        cosine_stats = float(sample.mean()), float(sample.std())
    positions = None if mask is None else np.flatnonzero(mask)
    if positions is not None and 8 * len(positions) < len(rows):  # few are quicker to copy
        rows = VectorRows(rows.ids[positions], rows.items[positions], rows.vectors[positions])
        positions = None
    cosines, groups = rows.vectors @ query, rows.items if one_per_item else rows.ids
    scores, gains = cosines, None
    if bonus is not None and cosine_stats is not None:
        # A few pictures may all be equally far from a query.
        gains = bonus.of(rows.items) * np.float32(max(cosine_stats[1], MIN_DEVIATION))
        scores = cosines + gains
    if positions is None:
        best = top_k_per_group(scores, groups, k)
    else:  # selecting scores is cheaper than selecting vectors
        best = positions[top_k_per_group(scores[positions], groups[positions], k)]
    return Neighbors(
        rows.ids[best],
        rows.items[best],
        cosines[best],
        None if gains is None else gains[best],
        cosine_stats,
    )


def top_k_per_group(scores: FloatArray, groups: Ids, k: int) -> NDArray[np.intp]:
    """Return the positions of the ``k`` highest scores, descending, at most one per group."""
    depth = min(2 * k, len(scores))
    while True:
        positions = (
            np.argpartition(-scores, depth - 1)[:depth]
            if depth < len(scores)
            else np.arange(len(scores))
        )
        ordered = positions[np.lexsort((positions, -scores[positions]))]
        firsts = np.sort(np.unique(groups[ordered], return_index=True)[1])[:k]
        if len(firsts) == k or depth == len(scores):
            return ordered[firsts]
        depth = min(4 * depth, len(scores))


def concat_rows(first: VectorRows, second: VectorRows) -> VectorRows:
    """Concatenate rows."""
    return VectorRows(
        np.concatenate([first.ids, second.ids]),
        np.concatenate([first.items, second.items]),
        np.concatenate([first.vectors, second.vectors]),
    )


def _select(rows: VectorRows, mask: NDArray[np.bool_]) -> VectorRows:
    return VectorRows(rows.ids[mask], rows.items[mask], rows.vectors[mask])


def _with_room(part: NDArray[Any], count: int) -> NDArray[Any]:
    """Return an array with so many more rows, which are yet to be written."""
    longer = np.empty((len(part) + count, *part.shape[1:]), part.dtype)
    longer[: len(part)] = part
    return longer


def _append_later(old: VectorRows, store: Store, last_id: int, expected: int) -> VectorRows:
    """Append the rows with higher ids, at most ``expected``: a writer may have added more."""
    ids, items, vectors = (_with_room(part, expected) for part in (old.ids, old.items, old.vectors))
    end = len(old)
    for block in store.rows_after(last_id):
        count = min(len(block), len(ids) - end)
        ids[end : end + count] = block.ids[:count]
        items[end : end + count] = block.items[:count]
        vectors[end : end + count] = block.vectors[:count]
        end += count
    return VectorRows(ids[:end], items[:end], vectors[:end])
