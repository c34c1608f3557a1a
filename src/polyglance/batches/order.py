"""The order in which training goes through a corpus that is larger than memory.

Every item comes once an epoch. Blocks of consecutive items are permuted, and items are shuffled
within windows of so many blocks as a stated number of bytes holds: a disk reads blocks in one
piece, and a cache of that size holds all that is read at a time. Where random reads are cheap, the
window is the whole corpus. The order depends on seed and epoch alone, and an item's place on its
number in the run, so that a resumed run continues exactly and processes never overlap.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyglance.config import validate_fields
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws

Indices = NDArray[np.int64]

_KEPT_WINDOWS = 4


@dataclass(frozen=True)
class Shuffle:
    """How far items are shuffled."""

    window: int | None = None
    """Items of a window; None for the whole corpus."""
    block: int = 256
    """Consecutive items that stay in one window."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "window", "block")

    @classmethod
    def within(cls, memory: int, item_bytes: int, *, orders: int = 1, block: int = 256) -> Shuffle:
        """Return windows that together occupy at most so many bytes.

        Args:
            memory: The bound.
            item_bytes: The mean size of an item.
            orders: Orders that are gone through at the same time, one for each language.
            block: Consecutive items that stay in one window; fewer where the bound is small.
        """
        window = max(1, memory // max(1, item_bytes * orders))
        return cls(window, min(block, window))


class EpochOrder:
    """An endless sequence of permutations of ``count`` items."""

    def __init__(self, count: int, seed: list[int], shuffle: Shuffle | None = None) -> None:
        """Prepare the order.

        Args:
            count: Number of items.
            seed: Of the permutations.
            shuffle: How far items are shuffled; the whole corpus by default.
        """
        shuffle = Shuffle() if shuffle is None else shuffle
        self.count, self.seed = count, seed
        whole = shuffle.window is None or shuffle.window >= count
        self.block = count if whole else min(shuffle.block, count)
        self.blocks = -(-count // self.block)
        per_window = 1 if whole else max(1, (shuffle.window or count) // self.block)
        self._blocks_per_window = per_window
        self._windows: OrderedDict[tuple[int, int], Indices] = OrderedDict()
        self._epochs: OrderedDict[int, tuple[Indices, Indices]] = OrderedDict()

    def take(self, numbers: Indices) -> Indices:
        """Return the items at places of the endless sequence."""
        epochs, places = np.divmod(numbers, self.count)
        items = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = np.flatnonzero(epochs == epoch)
            _, starts = self._epoch(epoch)
            windows = np.searchsorted(starts, places[of_epoch], side="right") - 1
            for window in np.unique(windows).tolist():
                chosen = of_epoch[windows == window]
                items[chosen] = self._window(epoch, window)[places[chosen] - starts[window]]
        return items

    def _epoch(self, epoch: int) -> tuple[Indices, Indices]:
        """Return the permuted blocks and the first place of each window."""
        if epoch not in self._epochs:
            blocks = np.random.default_rng([*self.seed, epoch]).permutation(self.blocks)
            sizes = np.minimum(self.block, self.count - blocks * self.block)
            before = np.cumsum(sizes) - sizes
            self._epochs[epoch] = blocks, before[:: self._blocks_per_window]
            while len(self._epochs) > 2:
                self._epochs.popitem(last=False)
        return self._epochs[epoch]

    def _window(self, epoch: int, window: int) -> Indices:
        """Return the items of a window, shuffled."""
        key = epoch, window
        if key not in self._windows:
            blocks, _ = self._epoch(epoch)
            first = window * self._blocks_per_window
            parts = [
                np.arange(block * self.block, min(self.count, (block + 1) * self.block))
                for block in blocks[first : first + self._blocks_per_window].tolist()
            ]
            generator = np.random.default_rng([*self.seed, epoch, window + 1])
            self._windows[key] = generator.permutation(np.concatenate(parts))
            while len(self._windows) > _KEPT_WINDOWS:
                self._windows.popitem(last=False)
        self._windows.move_to_end(key)
        return self._windows[key]


class GroupedOrder:
    """Goes through groups of items (languages) at fixed shares, each in an order of its own."""

    def __init__(
        self,
        counts: Indices,
        probabilities: NDArray[np.float64],
        *,
        seed: int,
        per_batch: int,
        shuffle: Shuffle | None = None,
    ) -> None:
        """Prepare the orders.

        Args:
            counts: ``(groups,)`` items of each group.
            probabilities: ``(groups,)`` the share of each.
            seed: Of the permutations.
            per_batch: Items that a batch takes, on all processes together.
            shuffle: How far items are shuffled; the whole corpus by default.
        """
        self.per_batch, self.seed = per_batch, seed
        uniform = np.allclose(probabilities, probabilities[0])
        period = len(counts) if uniform else _PERIOD
        self._quota = _round_to_sum(probabilities * period, period)
        self._period = period
        self._orders = [
            EpochOrder(int(count), [seed, group + 1], shuffle) if count else None
            for group, count in enumerate(counts)
        ]

    def take(self, numbers: Indices) -> tuple[Indices, Indices]:
        """Return the group of each item number of the run, and an item of the group.

        Of every ``period`` consecutive numbers each group has its share, in random order.
        """
        cycles, within = np.divmod(numbers, self._period)
        touched, rows = np.unique(cycles, return_inverse=True)
        kinds, ranks = self._cycles(touched)
        groups = kinds[rows, within]
        places = cycles * self._quota[groups] + ranks[rows, within]
        items = np.empty(len(numbers), np.int64)
        for group in np.unique(groups).tolist():
            order = self._orders[group]
            assert order is not None
            chosen = groups == group
            items[chosen] = order.take(places[chosen])
        return groups, items

    def _cycles(self, cycles: Indices) -> tuple[Indices, Indices]:
        """Return the group at each number of cycles, and its rank among the group's there.

        Both are ``(cycles, period)``.
        """
        packing = Packing.of([self._period] * len(cycles))
        draws = ItemDraws.of(self.seed, cycles).per_row("groups", packing)
        order = draws.view(len(cycles), -1).argsort(dim=1, stable=True).numpy()
        kinds = np.repeat(np.arange(len(self._quota)), self._quota)[order]
        first = np.cumsum(self._quota) - self._quota
        ranks = np.empty_like(kinds)
        by_kind = np.argsort(kinds, axis=1, kind="stable")
        own = np.arange(self._period) - np.repeat(first, self._quota)
        np.put_along_axis(ranks, by_kind, np.broadcast_to(own, kinds.shape), axis=1)
        return kinds, ranks


@dataclass(frozen=True)
class Streaming:
    """How training goes through a corpus on disk."""

    per_batch: int
    """Items (captions or images) that a batch takes, on all processes together."""
    seed: int = 0
    shuffle: Shuffle | None = None
    """How far images are shuffled; None for the whole corpus."""

    def order(self, counts: Indices, probabilities: NDArray[np.float64]) -> GroupedOrder:
        """Return an order of groups (languages) of so many items with these shares."""
        return GroupedOrder(
            counts, probabilities, seed=self.seed, per_batch=self.per_batch, shuffle=self.shuffle
        )


_PERIOD = 1024
"""Items after which unequal shares are exact; equal ones are after one item of each group."""


def _round_to_sum(values: NDArray[np.float64], total: int) -> Indices:
    """Round to integers that sum to ``total``; what is above 0 stays so."""
    floors = np.floor(values).astype(np.int64)
    floors = np.where(values > 0, np.maximum(floors, 1), 0)
    while (missing := total - int(floors.sum())) != 0:
        error = values - floors
        if missing > 0:
            floors[np.argsort(-error)[:missing]] += 1
        else:
            able = np.where(floors > 1, error, np.inf)
            floors[np.argmin(able)] -= 1
    return floors
