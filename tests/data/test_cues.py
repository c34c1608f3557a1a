"""Cues nearest to a clip, and rolling subtitles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polyglance.data.cues import merge_rolling_cues, nearest_cues
from polyglance.records import Cue

CUES = (Cue(0, 2, "a"), Cue(2, 4, "b"), Cue(3.5, 6, "c"), Cue(10, 12, "d"))


def nearest(start: float, end: float) -> str:
    return "".join(cue.text for cue in nearest_cues(CUES, start, end))


def test_the_cues_during_a_clip() -> None:
    assert nearest(1, 3) == "ab"
    assert nearest(0, 100) == "abcd"
    assert nearest(3.7, 3.8) == "bc"
    assert nearest(2, 3) == "b"  # "a" ends where the clip starts
    assert nearest(11, 11) == "d"  # a moment inside a cue


def test_the_nearest_cue_where_none_overlaps() -> None:
    assert nearest(7, 7.5) == "c"
    assert nearest(8.5, 9) == "d"
    assert nearest(50, 60) == "d"
    assert nearest(7, 9) == "c"  # both a second away: the earlier
    assert nearest_cues((), 0, 1) == ()


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=8),
    st.integers(0, 60),
    st.integers(0, 20),
)
def test_overlap_agrees_with_a_count_of_common_moments(
    spans: list[tuple[int, int]], start: int, length: int
) -> None:
    """With times as sets of moments, overlap is a common one and distance the least gap."""
    cues = [Cue(first, first + last, str(n)) for n, (first, last) in enumerate(sorted(spans))]
    end = start + length
    chosen = nearest_cues(cues, start, end)

    def moments(first: float, last: float) -> set[float]:
        return {moment / 4 for moment in range(int(first * 4), int(last * 4) + 1)}

    def distance(cue: Cue) -> float:
        pairs = ((a, b) for a in moments(cue.start, cue.end) for b in moments(start, end))
        return min(abs(a - b) for a, b in pairs)

    common = [cue for cue in cues if len(moments(cue.start, cue.end) & moments(start, end)) > 1]
    if common:
        assert set(common) <= set(chosen)
        assert all(distance(cue) == 0 for cue in chosen)
    else:
        assert min(map(distance, cues)) == min(map(distance, chosen))


def test_cues_are_ordered_by_time_and_repeated_text_is_kept() -> None:
    shown = [(4.0, 5.0, ["no"]), (0.0, 1.0, ["yes"]), (2.0, 3.0, ["no"]), (3.0, 3.5, ["", ""])]
    assert merge_rolling_cues(shown) == (
        Cue(0.0, 1.0, "yes"),
        Cue(2.0, 3.0, "no"),
        Cue(4.0, 5.0, "no"),
    )


def test_two_rolling_lines_at_a_time() -> None:
    shown = [(0.0, 1.0, ["a", "b"]), (1.0, 2.0, ["a", "b", "c"]), (2.0, 3.0, ["b", "c"])]
    assert merge_rolling_cues(shown) == (Cue(0.0, 1.0, "a b"), Cue(1.0, 3.0, "c"))
