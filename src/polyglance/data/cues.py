"""Subtitle cues: those nearest to a clip, and cues from the text a player shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from polyglance.records import Cue

ScreenText = tuple[float, float, Sequence[str]]
"""Start and end in seconds, and the lines that are on the screen between them."""

_MAX_GAP = 0.05
"""Cues at most this many seconds apart count as consecutive, despite rounding."""


def nearest_cues(cues: Sequence[Cue], start: float, end: float) -> tuple[Cue, ...]:
    """Return the consecutive cues closest in time to a clip (MMP, section 5.3).

    These are the cues that overlap the clip or, if none does, the nearest one; of two
    equally near the earlier.
    """
    gaps = [max(cue.start - end, start - cue.end) for cue in cues]
    during = tuple(cue for cue, gap in zip(cues, gaps, strict=True) if gap < 0)
    if during or not cues:
        return during
    return (cues[min(range(len(cues)), key=gaps.__getitem__)],)


def merge_rolling_cues(screens: Iterable[ScreenText]) -> tuple[Cue, ...]:
    """Return cues in order of time, each line once.

    Automatic subtitles roll: a line appears at the bottom, is shown alone for a hundredth
    of a second, then moves up while the next one appears. A line that is still on the
    screen from the previous cue extends that cue instead of starting a new one.
    """
    cues: list[Cue] = []
    previous: Sequence[str] = ()
    for start, end, lines in sorted(screens, key=lambda cue: (cue[0], cue[1])):
        lines = [line for line in lines if line]
        if not lines:
            continue
        rolls = bool(cues) and start <= cues[-1].end + _MAX_GAP
        new = lines[_overlap(previous, lines) if rolls else 0 :]
        if new:
            cues.append(Cue(start, end, " ".join(new)))
        else:
            cues[-1] = replace(cues[-1], end=max(end, cues[-1].end))
        previous = lines
    return tuple(cues)


def _overlap(previous: Sequence[str], lines: Sequence[str]) -> int:
    """Count the first lines that were the last lines of the previous cue."""
    for count in range(min(len(previous), len(lines)), 0, -1):
        if list(previous[-count:]) == list(lines[:count]):
            return count
    return 0
