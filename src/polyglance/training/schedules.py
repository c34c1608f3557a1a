"""Learning-rate schedules."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt"]


def lr_factor(schedule: Schedule, step: int, *, warmup: int, steps: int) -> float:
    """Return the learning rate of ``step`` (from 0) as a fraction of its peak.

    All schedules rise linearly over ``warmup`` steps. ``linear`` and ``cosine`` then fall to
    zero at ``steps``; ``inverse-sqrt`` (M3P) falls as ``sqrt(warmup / step)``.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, steps - warmup)
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - progress)
        case "cosine":
            return (1.0 + math.cos(math.pi * min(1.0, progress))) / 2
        case "inverse-sqrt":
            return math.sqrt(max(1, warmup) / max(1, step))
