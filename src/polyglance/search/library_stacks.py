"""The stacks of an open library, brought up to date when they are asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from polyglance.search.duplicates import (
    KINDS,
    Pairs,
    Stack,
    StackKind,
    StoredPairs,
    burst_pairs,
    group,
    near_pairs,
    pairs_path,
    seconds_of,
    select_rows,
)
from polyglance.search.query import Hit, MediaRef
from polyglance.search.sql_store import SqlStore
from polyglance.search.store import Store, VectorRows

MAX_QUICK, MAX_AGE = 20_000, 30.0
"""A search in a library of more pictures uses stacks that are at most so many seconds old."""


class LibraryStacks:
    """Copies, near-duplicates and bursts of a library. Threads may share it."""

    def __init__(
        self, store: Store, rows: Callable[[], VectorRows], path: Path | None = None
    ) -> None:
        """Prepare; nothing is read before it is needed.

        Args:
            store: The library.
            rows: Returns all its vectors.
            path: Its file, beside which pairs are kept; None keeps them in memory.
        """
        self._store, self._rows = store, rows
        self._path = None if path is None else pairs_path(path)
        self._lock = threading.RLock()
        self._revision: Hashable = None
        self._stored = StoredPairs.read(self._path, store.model_info.library)
        self._stacks: dict[int, tuple[int, ...]] = {}
        self._kinds: dict[tuple[int, ...], StackKind] = {}
        self._dates: dict[int, str] = {}
        self._time = 0.0

    def refresh(self) -> dict[int, tuple[int, ...]]:
        """Compare what is new; return for the id of each stacked picture the ids of its stack."""
        store = self._store
        if not isinstance(store, SqlStore):
            return {}
        with self._lock:
            revision = store.revision()
            if revision != self._revision:
                pairs = np.concatenate([self._similar(store), self._copies(store)])
                grouped = [(kind, tuple(ids)) for kind, ids in group(pairs)]
                self._stacks = {number: ids for _, ids in grouped for number in ids}
                self._kinds = {ids: kind for kind, ids in grouped}
                self._revision, self._time = revision, time.monotonic()
            return self._stacks

    def all(self) -> list[Stack]:
        """Return all stacks: copies first, then near-duplicates, then bursts; larger ones first."""
        self.refresh()
        ids = sorted(self._stacks)
        members = self._members(ids)
        stacks = [
            Stack(kind, tuple(sorted((members[one] for one in ids if one in members), key=_age)))
            for ids, kind in self._kinds.items()
        ]
        found = [stack for stack in stacks if len(stack.members) > 1]
        return sorted(
            found,
            key=lambda one: (KINDS.index(one.kind), -len(one.members), one.members[0].path),
        )

    def of(self, media: MediaRef) -> list[MediaRef]:
        """Return the pictures of a picture's stack, itself first."""
        ids = self.refresh().get(media.id, ())
        others = self._members([one for one in ids if one != media.id])
        return [media, *sorted(others.values(), key=_age)]

    def fold(self, hits: Sequence[Hit]) -> list[Hit]:
        """Keep the best hit of each stack, with the others of the stack under it."""
        stacks = self._for_search()
        kept: list[Hit] = []
        seen: set[int] = set()
        for hit in hits:
            if hit.id not in seen:
                kept.append(hit)
                seen.update(stacks.get(hit.id, ()))
        others = self._members([one for hit in kept for one in stacks.get(hit.id, ())])
        return [
            replace(
                hit,
                stack=tuple(
                    others[one] for one in stacks[hit.id] if one != hit.id and one in others
                ),
            )
            if hit.id in stacks
            else hit
            for hit in kept
        ]

    def _for_search(self) -> dict[int, tuple[int, ...]]:
        """Return stacks, of a large library perhaps those of moments ago."""
        with self._lock:
            if len(self._dates) > MAX_QUICK and time.monotonic() < self._time + MAX_AGE:
                return self._stacks
            return self.refresh()

    def _members(self, ids: Sequence[int]) -> dict[int, MediaRef]:
        found: dict[int, MediaRef] = {}
        for start in range(0, len(ids), 1000):
            block = self._store.lookup(ids[start : start + 1000])
            found |= {one: MediaRef.from_item(one, *item) for one, item in block.items()}
        return found

    def _similar(self, store: SqlStore) -> Pairs:
        """Return the pairs of similar pictures; compare only what is new."""
        library = store.model_info.library
        table, last = store.id_table, self._stored.last
        dates = dict(
            store.fetch_all(
                f"SELECT {table}.id, taken FROM {table} JOIN items ON items.id = {table}.item"
                " WHERE kind = 'picture'"
            )
        )
        self._dates = dates
        pairs = self._stored.pairs
        present = np.isin(pairs[:, :2], np.fromiter(dates, np.int64, len(dates))).all(axis=1)
        pairs = pairs[present]
        newest = max(dates, default=0)
        if newest > last:
            ids = np.sort(np.fromiter(dates, np.int64, len(dates)))
            rows = select_rows(self._rows(), ids)
            seconds = seconds_of([dates[one] for one in rows.ids.tolist()])
            new = [near_pairs(rows, last), burst_pairs(rows, seconds, last)]
            pairs = np.concatenate([pairs, *new])
            self._stored = StoredPairs(library, newest, pairs)
            if self._path is not None:
                self._stored.write(self._path)
        return pairs

    @staticmethod
    def _copies(store: SqlStore) -> Pairs:
        """Return pairs of the same content, by the first vector of each item."""
        table = store.id_table
        rows = store.fetch_all(
            f"SELECT content, min({table}.id) FROM items JOIN {table} ON {table}.item = items.id"
            " WHERE content IN (SELECT content FROM items GROUP BY content HAVING count(*) > 1)"
            " GROUP BY content, items.id ORDER BY content, items.id"
        )
        pairs = [(a[1], b[1], 0) for a, b in pairwise(rows) if a[0] == b[0]]
        return np.array(pairs, np.int64).reshape(-1, 3)


def _age(media: MediaRef) -> tuple[str, str]:
    return media.taken.isoformat(), str(media.path)
