"""The order of a corpus on disk: every item once an epoch, shuffled within a bound."""

from __future__ import annotations

import numpy as np
import pytest

from polyglance.batches.order import EpochOrder, GroupedOrder, Shuffle


@pytest.mark.parametrize("shuffle", [None, Shuffle(40, 8), Shuffle(8, 8), Shuffle(30, 7)])
def test_every_item_comes_once_an_epoch(shuffle: Shuffle | None) -> None:
    order = EpochOrder(203, [1], shuffle)
    items = order.take(np.arange(3 * 203)).reshape(3, 203)
    assert (np.sort(items, axis=1) == np.arange(203)).all()
    assert not np.array_equal(items[0], items[1])
    assert not np.array_equal(items[0], EpochOrder(203, [2], shuffle).take(np.arange(203)))
    # Any part of it, at any time: a resumed run continues where it was.
    again = EpochOrder(203, [1], shuffle)
    parts = [again.take(np.arange(start, start + 29)) for start in range(580, -1, -29)]
    assert np.array_equal(np.concatenate(parts[::-1]), items.ravel()[: 29 * 21])


def test_windows_keep_blocks_together_and_shuffle_within_them() -> None:
    order = EpochOrder(4096, [0], Shuffle(512, 64))
    windows = order.take(np.arange(4096)).reshape(8, 512)
    for window in windows:
        blocks = np.unique(window // 64)
        assert len(blocks) == 8
        assert (np.diff(window) == 1).mean() < 0.05
    spread = [np.ptp(np.unique(window // 64)) for window in windows]
    assert np.mean(spread) > 30  # blocks of a window come from the whole corpus
    whole = EpochOrder(4096, [0]).take(np.arange(512))
    assert np.ptp(whole) > 4000


def test_bound_in_bytes_decides_the_window() -> None:
    assert Shuffle.within(1 << 20, 1 << 10, orders=4) == Shuffle(256, 256)
    assert Shuffle.within(1 << 20, 1 << 10, orders=64) == Shuffle(16, 16)
    assert Shuffle.within(10, 1000) == Shuffle(1, 1)


@pytest.mark.parametrize("shares", [(1 / 3, 1 / 3, 1 / 3), (0.7, 0.0, 0.3)])
def test_groups_have_their_shares_and_epochs_of_their_own(shares: tuple[float, ...]) -> None:
    counts = np.array([50, 20, 90])
    order = GroupedOrder(counts, np.array(shares), seed=3, per_batch=16)
    groups, items = order.take(np.arange(30_000))
    assert np.bincount(groups, minlength=3) / 30_000 == pytest.approx(shares, abs=2e-3)
    early = np.bincount(groups[:200], minlength=3) / 200
    assert early == pytest.approx(shares, abs=0.12)
    for group in np.flatnonzero(shares):
        own = items[groups == group]
        epochs = len(own) // counts[group]
        by_epoch = own[: epochs * counts[group]].reshape(epochs, -1)
        assert (np.sort(by_epoch, axis=1) == np.arange(counts[group])).all()
    parts = [order.take(np.arange(start, start + 100)) for start in range(0, 1000, 100)]
    assert np.array_equal(np.concatenate([part[1] for part in parts]), items[:1000])
