"""Windows of a picture to hide, and what their effects say about its cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_PAIRS = 130
"""Pairs of a text and a picture that one explanation reads: a second and a half on two cores."""
_WINDOWS = ((1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (3, 3), (4, 3))
"""Side and stride of windows in cells, finest first: 64, 49, 36, 16 and three times 9 in a grid of
8, and 9 only by the last of them in one of 10."""


def choose_windows(grid: int, texts: int, max_pairs: int = MAX_PAIRS) -> NDArray[np.bool_]:
    """Return the finest windows that can all be hidden from every text.

    Args:
        grid: Cells per side.
        texts: Variants of the text that read each picture.
        max_pairs: Of texts and pictures; the fewest windows may take more.

    Returns:
        (windows, grid, grid), true for cells to hide.
    """
    found = [_windows(grid, min(side, grid), stride) for side, stride in _WINDOWS]
    fitting = [windows for windows in found if texts * (1 + len(windows)) <= max_pairs]
    return fitting[0] if fitting else min(found, key=len)


def spread_credit(credit: NDArray[np.float32], windows: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return each cell's mean credit over the windows that hide it; 0 if it is negative.

    Args:
        credit: (words, windows), how much is lost when a window is hidden.
        windows: (windows, grid, grid).

    Returns:
        (words, grid, grid).
    """
    share = windows.reshape(len(windows), -1).astype(np.float32)
    cells = credit @ share / share.sum(0)
    heatmaps: NDArray[np.float32] = np.maximum(cells, 0).reshape(-1, *windows.shape[1:])
    return heatmaps.astype(np.float32)


def _windows(grid: int, side: int, stride: int) -> NDArray[np.bool_]:
    """Return all windows of a side at a stride, the last of which end with the grid."""
    starts = sorted({*range(0, grid - side + 1, stride), grid - side})
    inside = np.zeros((len(starts), grid), bool)
    for row, start in zip(inside, starts, strict=True):
        row[start : start + side] = True
    windows: NDArray[np.bool_] = inside[:, None, :, None] & inside[None, :, None, :]
    return windows.reshape(-1, grid, grid)
