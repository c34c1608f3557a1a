"""Statistics over seeds: means, standard deviations and paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Gain = tuple[float, float | None]
"""Mean and standard deviation of a difference; with a single seed the latter is None."""

MIN_GAIN_OF_ONE_SEED = 2.0
"""Points of mR that a single seed must differ by: another test sample alone may make half of it."""


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, the standard deviation and the value of each seed."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "std": std, "values": list(values)}


def cell(figures: Mapping[str, Any]) -> str:
    """Format a spread for a table: ``41.2 ± 0.3``."""
    std = figures["std"]
    return f"{figures['mean']:.1f}" + ("" if std is None else f" ± {std:.1f}")


def gain(better: Sequence[float], worse: Sequence[float]) -> Gain:
    """Return how far one is above the other, paired by seed."""
    gains = spread([a - b for a, b in zip(better, worse, strict=True)])
    return gains["mean"], gains["std"]


def verdict(difference: Gain) -> str:
    """Say whether a gain is larger than the standard deviation over seeds."""
    mean, std = difference
    if std is not None and abs(mean) <= std:
        return "equal within the deviation of seeds"
    if std is None and abs(mean) < MIN_GAIN_OF_ONE_SEED:
        return "too close to tell from one seed"
    return ("yes" if mean > 0 else "no") + (", by one seed" if std is None else "")


def signed(difference: Gain) -> str:
    """Format a gain with its sign: ``+1.4 ± 0.2``."""
    mean, std = difference
    return f"{mean:+.1f}" + ("" if std is None else f" ± {std:.1f}")
