from __future__ import annotations

import numpy as np
import pytest
import torch

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws


def splitmix64(state: int) -> float:
    """SplitMix64's output function in Python's integers, as a number in [0, 1)."""
    mask = 2**64 - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    return (mix(state & mask) >> 11) * 2.0**-53


def test_numbers_are_those_of_splitmix64() -> None:
    draws = ItemDraws.of(2**62 + 12345, [0, 7, 10**12])
    states = draws._states("x").tolist()
    golden = 0x9E3779B97F4A7C15
    assert draws.per_item("x").tolist() == [splitmix64(state + golden) for state in states]
    rows = draws.per_row("x", Packing.of([2, 0, 3])).tolist()
    slow = [splitmix64(states[item] + n * golden) for item, n in ((0, 1), (0, 2), (2, 1), (2, 2))]
    assert rows[:4] == slow


def test_numbers_are_uniform_and_independent() -> None:
    draws = ItemDraws.of(3, 2000)
    packing = Packing.of([50] * 2000)
    first, second = draws.per_row("a", packing).numpy(), draws.per_row("b", packing).numpy()
    next_step = ItemDraws.of(4, 2000).per_row("a", packing).numpy()
    for numbers in (first, second, draws.named("a").per_item("b").numpy()):
        counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
        assert counts == pytest.approx(len(numbers) / 10, rel=0.2)
    others = (second, next_step, np.roll(first, 1), np.roll(first, 50))
    for other in others:
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.015


def test_a_part_of_the_items_has_the_same_numbers() -> None:
    lengths = np.random.default_rng(0).integers(0, 9, 40)
    whole = ItemDraws.of(5, 40).per_row("a", Packing.of(lengths))
    parts = [
        ItemDraws.of(5, np.arange(40)[part]).per_row("a", Packing.of(lengths[part]))
        for part in (slice(0, 11), slice(11, 30), slice(30, 40))
    ]
    assert torch.equal(torch.cat(parts), whole)
    with pytest.raises(ValueError, match="2 sequences are not 40 items"):
        ItemDraws.of(5, 40).per_row("a", Packing.of([1, 2]))
