"""Look through a library without a query: by date, by folder, the most recently added first.

A `View` is the list of item ids in an order, under a filter, as it was at one moment: a page at
any place of it costs the same, and pages of one view fit together while others index files.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyglance.search.query import MediaRef
from polyglance.search.store import (
    Bucket,
    BucketUnit,
    Details,
    Facet,
    Filter,
    Ids,
    Item,
    LibraryUnavailableError,
    Store,
)

Order: TypeAlias = Literal["taken", "added"]
"""The newest first, by when it was taken or when it was added to the library."""

SHAPES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Codes of aspect ratios: the character at 32 is a square, `STEPS` further twice as wide as high.

So a page lays 100,000 pictures out by 100 kB, before it knows anything else of them.
"""
STEPS = 16
REUSE_SECONDS = 2.0
"""How long a view is reused while the library changes."""
MAX_VIEWS = 64
MAX_VIEW_BYTES = 64_000_000
"""How many views are kept for clients that page through them, and their size."""
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Items in an order, under a filter."""

    token: str
    """Names the view; the same for the same items in the same order."""
    items: Ids
    """The ids of items, not of their vectors."""
    positions: Ids
    """Where they are among all items by date."""
    num_all: int
    """How many items the library had."""
    by_unit: dict[BucketUnit, list[Bucket]] = field(default_factory=dict)
    """How many of all items there are of each year, month or day, once asked for."""
    ratios: list[NDArray[np.uint8]] = field(default_factory=list)
    """The codes of the aspect ratios of all items by date, once asked for."""

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class BucketAt:
    """The items of a year, month or day in a view, and where they begin."""

    date: str
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Current:
    revision: Hashable
    time: float
    view: View


class Browser:
    """Views of a library. Threads may share it."""

    def __init__(
        self, store: Callable[[], Store], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Look through the library that ``store`` returns."""
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self._current: OrderedDict[tuple[Filter, Order], _Current] = OrderedDict()
        self._views: OrderedDict[str, View] = OrderedDict()

    def view(
        self,
        where: Filter | None = None,
        order: Order = "taken",
        token: str | None = None,
        *,
        fresh: bool = False,
    ) -> View:
        """Return the items that match, in order.

        Args:
            where: The filter; None for all items.
            order: What comes first.
            token: A view that this one should be, if it is still known.
            fresh: Look again, even a moment after the library has changed.

        Returns:
            The view.
        """
        with self._lock:
            if token is not None and (known := self._views.get(token)) is not None:
                self._views.move_to_end(token)
                return known
            return self._latest(where or Filter(), order, fresh)

    def refresh(self) -> None:
        """Forget which views are the latest: the library has changed, and is to be seen so."""
        with self._lock:
            self._current.clear()

    def timeline(
        self, where: Filter | None = None, unit: BucketUnit = "month"
    ) -> tuple[View, list[BucketAt]]:
        """Return the items that match by date, and how many there are of each unit of time."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                view = self.view(where)
                if self._count(view, unit):
                    return view, _buckets(view, unit)
                self._current.clear()  # another process has written meanwhile
        raise LibraryUnavailableError("the library is being changed: try again in a moment")

    def added_timeline(self, where: Filter | None = None) -> tuple[View, list[BucketAt]]:
        """Return the items that match, the last added first, and how many were added each day.

        Days are those of this machine's time zone. Items of libraries that did not record it yet
        come last, without a date.
        """
        view = self.view(where, "added")
        lowest: dict[str, int] = {}
        for hour, item in self._store().hours_added():
            day = datetime.fromisoformat(f"{hour}:00+00:00").astimezone().date().isoformat()
            lowest[day] = min(item, lowest.get(day, item))
        # Ids rise with every item that is added, so a day's are those down to its lowest.
        descending = np.minimum.accumulate(np.array([*lowest.values(), 0], np.int64))
        ends = np.searchsorted(-view.items, -descending, side="right").tolist()
        return view, [
            BucketAt(day, stop - start, start)
            for day, start, stop in zip([*lowest, ""], [0, *ends[:-1]], ends, strict=True)
            if stop > start
        ]

    def shapes(self, view: View) -> str:
        """Return a character for the aspect ratio of each item of a view; see `SHAPES`."""
        with self._lock:
            if not view.ratios:
                widths, heights = self._store().shapes()
                if len(widths) != view.num_all:  # another process has written meanwhile
                    return SHAPES[len(SHAPES) // 2] * len(view)
                view.ratios.append(_ratio_codes(widths, heights))
        return view.ratios[0][view.positions].tobytes().decode()

    def page(self, view: View, offset: int, limit: int) -> list[tuple[int, MediaRef]]:
        """Return items of a view with their ranks; of a clip, its first span.

        Items that were deleted since the view was made are left out.

        Args:
            view: The view.
            offset: The rank of the first.
            limit: How many at most.
        """
        items = view.items[offset : offset + limit].tolist()
        media = self.media(items)
        return [(offset + place, media[item]) for place, item in enumerate(items) if item in media]

    def media(self, items: Sequence[int]) -> dict[int, MediaRef]:
        """Return references to items, by their ids; of a clip, to its first span."""
        store = self._store()
        first = store.media_ids(items)
        found = store.lookup(list(first.values()))
        return {
            item: MediaRef.from_item(media_id, *found[media_id])
            for item, media_id in first.items()
            if media_id in found
        }

    def media_ids(self, items: Sequence[int]) -> dict[int, int]:
        """Return the id of the first vector of each item, by the item's id."""
        return self._store().media_ids(items)

    def rank(self, view: View, media_id: int) -> int | None:
        """Return the place of an item in a view, or None if it is not there."""
        places = np.flatnonzero(view.items == self._store().item_of(media_id))
        return int(places[0]) if len(places) else None

    def details(self, media_id: int) -> tuple[Item, Details] | None:
        """Return all that is known of an item, or None if it was removed."""
        store = self._store()
        found = store.lookup([media_id]).get(media_id)
        if found is None:
            return None
        return found[0], store.details([found[0].path]).get(found[0].path, Details())

    def item_paths(self) -> list[tuple[int, str]]:
        """Return id and path of all items, ordered by path."""
        return self._store().item_paths()

    def facets(self, column: Facet) -> list[tuple[str, int]]:
        """Count the items of each camera or place, the most frequent first."""
        return self._store().facets(column)

    def _latest(self, where: Filter, order: Order, fresh: bool = False) -> View:
        """Return a view of the library as it is, or was a moment ago."""
        store, key = self._store(), (where, order)
        revision, now = store.revision(), self._clock()
        known = self._current.get(key)
        recent = known is not None and not fresh and now - known.time < REUSE_SECONDS
        if known is not None and (known.revision == revision or recent):
            return known.view
        if where or order != "taken":
            view = _restrict(self._latest(Filter(), "taken", fresh), where, order, store)
        else:
            items = store.timeline()
            view = View(_token(items), items, np.arange(len(items)), len(items))
        # The same items in the same order keep what was counted of them.
        same = self._views.get(view.token)
        view = same if same is not None and same.num_all == view.num_all else view
        self._current[key] = _Current(revision, now, view)
        self._current.move_to_end(key)
        self._views[view.token] = view
        self._views.move_to_end(view.token)
        self._forget()
        return view

    def _count(self, view: View, unit: BucketUnit) -> bool:
        """Count all items by a unit of time; return False if they are others than the view's."""
        if unit not in view.by_unit:
            counted = self._store().buckets(unit)
            if sum(bucket.count for bucket in counted) != view.num_all:
                return False
            view.by_unit[unit] = counted
        return True

    def _forget(self) -> None:
        """Drop the views that were not used for the longest time."""
        size = sum(2 * view.items.nbytes for view in self._views.values())
        while len(self._views) > 1 and (len(self._views) > MAX_VIEWS or size > MAX_VIEW_BYTES):
            size -= 2 * self._views.popitem(last=False)[1].items.nbytes
        while len(self._current) > MAX_VIEWS:
            self._current.popitem(last=False)


def _buckets(view: View, unit: BucketUnit) -> list[BucketAt]:
    """Return how many items of a view by date there are of each unit, and where they begin."""
    counted = view.by_unit[unit]
    ends = accumulate(bucket.count for bucket in counted)
    bounds = np.searchsorted(view.positions, [0, *ends]).tolist()
    return [
        BucketAt(bucket.date, stop - start, start)
        for bucket, start, stop in zip(counted, bounds[:-1], bounds[1:], strict=True)
        if stop > start
    ]


def _ratio_codes(widths: Ids, heights: Ids) -> NDArray[np.uint8]:
    """Return the characters of `SHAPES`; an unknown shape counts as a square."""
    ratios = np.maximum(widths, 1) / np.maximum(heights, 1)
    codes = np.rint(len(SHAPES) // 2 + STEPS * np.log2(ratios)).clip(0, len(SHAPES) - 1)
    characters: NDArray[np.uint8] = np.frombuffer(SHAPES.encode(), np.uint8)
    shapes: NDArray[np.uint8] = characters[codes.astype(np.int64)]
    return shapes


def _restrict(everything: View, where: Filter, order: Order, store: Store) -> View:
    """Return the part of all items that matches, in order."""
    items, positions = everything.items, everything.positions
    if where:
        chosen = np.isin(items, store.item_ids(where), assume_unique=True)
        items, positions = items[chosen], positions[chosen]
    if order == "added":  # ids rise with every item that is added
        by_id = np.argsort(-items, kind="stable")
        items, positions = items[by_id], positions[by_id]
    return View(
        _token(items), items, positions, everything.num_all, everything.by_unit, everything.ratios
    )


def _token(items: Ids) -> str:
    return hashlib.blake2b(items.astype("<i8").tobytes(), digest_size=9).hexdigest()
