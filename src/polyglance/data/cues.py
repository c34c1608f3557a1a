"""Subtitles in time: which are said during a clip, and cues from what a player shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from polyglance.records import Cue

ScreenText = tuple[float, float, Sequence[str]]
"""Lines on the screen from a start to an end in seconds."""

_PAUSE = 0.05
"""Cues closer than this follow each other without a break, whatever was rounded."""


def nearest_cues(cues: Sequence[Cue], start: float, end: float) -> tuple[Cue, ...]:
    """The consecutive cues that are closest in time to a clip (MMP, section 5.3).

    They are those said during the clip, or, when nothing is said during it,
    the one that is least far away; of two equally far the earlier.
    """
    gaps = [max(cue.start - end, start - cue.end) for cue in cues]
    during = tuple(cue for cue, gap in zip(cues, gaps, strict=True) if gap < 0)
    if during or not cues:
        return during
    return (cues[min(range(len(cues)), key=gaps.__getitem__)],)


def merge_rolling_cues(shown: Iterable[ScreenText]) -> tuple[Cue, ...]:
    """Cues in order of time, each line once.

    Automatic subtitles roll: a line appears below, is shown alone for a
    hundredth of a second, then moves up while the next one appears. Lines that
    are still on the screen from the cue before are therefore not said again;
    they only last longer.
    """
    cues: list[Cue] = []
    before: Sequence[str] = ()
    for start, end, lines in sorted(shown, key=lambda cue: (cue[0], cue[1])):
        lines = [line for line in lines if line]
        if not lines:
            continue
        rolls = bool(cues) and start <= cues[-1].end + _PAUSE
        fresh = lines[_still_shown(before, lines) if rolls else 0 :]
        if fresh:
            cues.append(Cue(start, end, " ".join(fresh)))
        else:
            cues[-1] = replace(cues[-1], end=max(end, cues[-1].end))
        before = lines
    return tuple(cues)


def _still_shown(before: Sequence[str], lines: Sequence[str]) -> int:
    """How many of the first lines were the last lines of the cue before."""
    for count in range(min(len(before), len(lines)), 0, -1):
        if list(before[-count:]) == list(lines[:count]):
            return count
    return 0
