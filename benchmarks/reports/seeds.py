"""Figures of several seeds: mean and deviation, and gains seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Gain = tuple[float, float | None]
"""Mean and deviation of a difference; a single seed has none."""

LEAST_BY_ONE = 2.0
"""Points of mR that one seed must differ by: other test pictures alone may make half of that."""


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and deviation, and what each seed gave."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": deviation, "seeds": list(values)}


def cell(figures: Mapping[str, Any]) -> str:
    """A spread as a table has it."""
    deviation = figures["deviation"]
    return f"{figures['mean']:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")


def gain(better: Sequence[float], worse: Sequence[float]) -> Gain:
    """By how much one is above the other, seed by seed."""
    gains = spread([a - b for a, b in zip(better, worse, strict=True)])
    return gains["mean"], gains["deviation"]


def verdict(found: Gain) -> str:
    """Whether there is a gain, beyond the deviation of seeds."""
    mean, deviation = found
    if deviation is not None and abs(mean) <= deviation:
        return "equal within the deviation of seeds"
    if deviation is None and abs(mean) < LEAST_BY_ONE:
        return "too near to tell by one seed"
    return ("yes" if mean > 0 else "no") + (", by one seed" if deviation is None else "")


def signed(found: Gain) -> str:
    """A gain with its sign."""
    mean, deviation = found
    return f"{mean:+.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")
