"""Random numbers of a batch that do not depend on how the batch is split over processes.

Masking needs random numbers for every sub-word and region. A generator would give a process
that holds a part of the batch other numbers than one that holds all of it. Here a number is
computed from a key, the item's number in the whole batch and the row's position in the item
(SplitMix64, Steele et al. 2014), on any device, in any order.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.nn.packing import Packing

_GOLDEN = -0x61C8864680B583EB
"""SplitMix64's increment, 0x9E3779B97F4A7C15, as a signed number."""
_MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""SplitMix64's 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB, likewise."""
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class ItemDraws:
    """Uniform random numbers for the items of a batch and for their packed rows."""

    key: int
    """Of the step, from 0 to less than 2**63; equal on all processes."""
    items: Tensor
    """``(n,)`` int64: each item's number in the whole batch."""
    step: int = 0
    """Of training, for augmentation that changes on the way."""

    @classmethod
    def of(cls, key: int, items: int | Sequence[int] | NDArray[np.integer[Any]]) -> ItemDraws:
        """Build draws for items with these numbers, or for a whole batch of so many items."""
        numbers = np.arange(items) if isinstance(items, int) else np.asarray(items, np.int64)
        return cls(key, torch.from_numpy(np.ascontiguousarray(numbers, np.int64)))

    def named(self, name: str) -> ItemDraws:
        """Return draws of the same items that are independent of these."""
        word = zlib.crc32(name.encode())
        key = ((self.key ^ word) * 0x5851F42D4C957F2D + word) % 2**63
        return replace(self, key=key)

    def per_item(self, name: str) -> Tensor:
        """Return a number in [0, 1) for each item, ``(n,)`` float64; another for each name."""
        return _uniform(self._states(name) + _GOLDEN)

    def per_row(self, name: str, packing: Packing) -> Tensor:
        """Return a number in [0, 1) for each row, ``(rows,)`` float64; another for each name."""
        if len(packing) != len(self.items):
            raise ValueError(f"{len(packing)} sequences are not {len(self.items)} items")
        states = self._states(name)[packing.sequence_ids]
        return _uniform(states + (packing.positions + 1) * _GOLDEN)

    def _states(self, name: str) -> Tensor:
        return _mix(self.items * _GOLDEN + self.named(name).key)


def _uniform(states: Tensor) -> Tensor:
    return _shift(_mix(states), 11).double() * _UNIT


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MULTIPLIERS[0]
    x = (x ^ _shift(x, 27)) * _MULTIPLIERS[1]
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right as an unsigned number."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
