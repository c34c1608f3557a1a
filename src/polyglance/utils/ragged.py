"""Ragged lists as flat arrays, so that numpy works on them without a loop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def ragged_arange(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``arange(start, start + length)`` of every pair, concatenated: (sum of lengths,)."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
