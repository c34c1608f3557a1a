from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polyglance.utils.ragged import ragged_arange


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 6)), max_size=20))
def test_numbers_from_each_start_on_lie_end_to_end(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(ranges, np.int64).reshape(-1, 2).T
    expected = [start + k for start, length in ranges for k in range(length)]
    assert ragged_arange(starts, lengths).tolist() == expected
