"""Statistics of result pages: means and deviations over seeds, and claims with their verdicts.

A claim is a `Line`: what it compares, and its sentence. The sentences of a page are written
together, because p-values are corrected for the number of comparisons on it (`write_lines`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyglance.evaluation.statistics import Comparison, compare_seeds, holm
from polyglance.reproduce.summaries import over_seeds

spread = over_seeds
Gain = Comparison
"""A paired difference with its 95 % interval and p-value; a single seed has neither."""


@dataclass(frozen=True)
class Line:
    """A sentence about comparisons."""

    text: Callable[..., str]
    """Writes it from the comparisons, with corrected p-values, in their order."""
    gains: tuple[Gain, ...] = ()


def plain(text: str) -> Line:
    """Return a sentence that compares nothing."""
    return Line(lambda: text)


def write_lines(*lists: Sequence[Line]) -> list[list[str]]:
    """Write the sentences of a page, with p-values corrected by Holm's method over all of them."""
    corrected = iter(holm([gain for lines in lists for line in lines for gain in line.gains]))
    return [
        [line.text(*(next(corrected) for _ in line.gains)) for line in lines] for lines in lists
    ]


def how_compared(*lists: Sequence[Line]) -> str:
    """Say over what the differences of a page are paired, and how p-values are corrected."""
    gains = [gain for lines in lists for line in lines for gain in line.gains]
    judged = [gain for gain in gains if gain.p is not None]
    with_queries = sum(gain.queries is not None for gain in gains)
    if not judged:
        return "There is one seed, so nothing is decided."
    if with_queries == len(gains):
        paired = "over seeds and test pictures"
    elif with_queries:
        paired = "over seeds and test pictures where the number of pictures is given, else by seed"
    else:
        paired = "by seed, since these results hold no single queries"
    return (
        f"Differences are paired {paired}: [mean, 95 % interval and"
        " p-value](metrics.md#comparing-two-settings). P-values are corrected for the"
        f" {len(judged)} comparisons of this page by Holm's method, intervals are not: a"
        " difference may be *not decided* although its interval is above zero."
    )


def stored(
    figures: Mapping[str, Any], better: str, worse: str, columns: Iterable[str] = ()
) -> Gain | None:
    """Return a comparison of two rows that `polyglance reproduce` made over seeds and queries.

    Args:
        figures: A file of results; older ones hold no comparisons.
        better: The row that is claimed to be above.
        worse: The other row.
        columns: The columns of the claim; none for any.
    """
    wanted = set(columns)
    for found in figures.get("comparisons", ()):
        same_columns = not wanted or set(found["columns"]) == wanted
        if (found["better"], found["worse"]) == (better, worse) and same_columns:
            return Gain(*(found[field] for field in Gain._fields))
    return None


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
    """Format a gain: ``+1.4 [+0.8, +2.0], p 0.003``, and the pictures that it is paired over."""
    if difference.queries is None:
        return str(difference)
    return f"{difference}, {difference.queries:,} pictures"
