"""Statistics over seeds: means, standard deviations, and paired differences with a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyglance.evaluation.statistics import Comparison, compare_seeds
from polyglance.reproduce.summaries import over_seeds

spread = over_seeds
Gain = Comparison
"""A paired difference with its 95 % interval and p-value; a single seed has neither."""


def cell(figures: Mapping[str, Any]) -> str:
    """Format a spread for a table: ``41.2 ± 0.3``."""
    std = figures["std"]
    return f"{figures['mean']:.1f}" + ("" if std is None else f" ± {std:.1f}")


def gain(better: Sequence[float], worse: Sequence[float] | float = 0.0) -> Gain:
    """Return how far one is above the other, or above a constant, paired by seed."""
    return compare_seeds(better, worse)


def verdict(difference: Gain) -> str:
    """Say yes or no where the p-value decides, else that it is not decided."""
    if difference.p is None:
        return "not decided, by one seed"
    return difference.verdict


def signed(difference: Gain) -> str:
    """Format a gain: ``+1.4 [+0.8, +2.0], p 0.003``."""
    return str(difference)
