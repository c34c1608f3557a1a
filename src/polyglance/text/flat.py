"""Ragged lists as flat arrays, so that nothing loops over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spread(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each start on, as many as its length, end to end."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
