"""Windows to hide, and the credit of their cells."""

from __future__ import annotations

import numpy as np
import pytest

from polyglance.encoders.occlusion import MAX_PAIRS, choose_windows, spread_credit


@pytest.mark.parametrize(
    ("grid", "numbers"),
    [
        (7, [49, 36, 25, 9, 9, 4]),
        (8, [64, 36, 16, 16, 9, 9]),
        (9, [64, 16, 16, 16, 9, 9]),
        (10, [64, 25, 25, 16, 9, 9]),
    ],
)
def test_windows_are_as_fine_as_the_budget_allows(grid: int, numbers: list[int]) -> None:
    assert [len(choose_windows(grid, texts)) for texts in (2, 3, 5, 7, 8, 40)] == numbers
    for texts in range(1, 14):
        windows = choose_windows(grid, texts)
        assert texts * (1 + len(windows)) <= MAX_PAIRS
        assert windows.any(0).all()  # every cell is hidden once
        assert windows.shape[1:] == (grid, grid)


def test_windows_of_a_small_grid_fit_into_it() -> None:
    for texts in (1, 10, 100):
        windows = choose_windows(2, texts)
        assert windows.shape[1:] == (2, 2)
        assert windows.any(0).all()


def test_a_cell_has_the_mean_credit_of_its_windows() -> None:
    windows = np.zeros((3, 2, 2), bool)
    windows[0, 0, :] = windows[1, :, 0] = windows[2, 1, 1] = True
    credit = np.array([[2.0, 4.0, -1.0], [0.0, -2.0, 3.0]], np.float32)
    expected = [[[3, 2], [4, 0]], [[0, 0], [0, 3]]]
    assert spread_credit(credit, windows).tolist() == expected
