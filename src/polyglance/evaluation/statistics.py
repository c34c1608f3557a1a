"""Paired statistics: whether one setting is above another, over seeds and queries.

A difference between two trained systems varies with the training seed and with the test queries.
`compare_queries` takes both as random and crossed: every seed is evaluated on the same queries.
`compare_seeds` is the paired t-test over seeds, for figures without their queries. A single seed
with queries is compared over queries alone, which says nothing of other seeds.

Scores here are per query and add up to the reported figure: for mR, `image_scores` gives each
image the recalls of its own queries in both directions, so that captions of one image, which
succeed and fail together, are resampled together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import RECALL_AT

ALPHA = 0.05
"""A claim is decided if its p-value is below this; intervals cover the rest, 95 %."""
RESAMPLES = 4000
"""Resamples of queries where there is one seed."""

Floats = npt.NDArray[np.float64]
Verdict = Literal["yes", "no", "not decided"]
Over = Literal["seeds", "seeds and queries", "queries"]


class Comparison(NamedTuple):
    """How far one setting is above another, paired."""

    mean: float
    low: float | None
    """Lower end of the 95 % interval; None where nothing says how far chance reaches."""
    high: float | None
    p: float | None
    """Two-sided p-value of no difference."""
    seeds: int
    queries: int | None = None
    """Images, or other units, whose queries were compared; None where only means were."""
    over: Over = "seeds"
    """What was taken as random."""

    @property
    def verdict(self) -> Verdict:
        """Whether it is above: yes or no only where the p-value is below `ALPHA`."""
        if self.p is None or not self.p < ALPHA or self.mean == 0:
            return "not decided"
        return "yes" if self.mean > 0 else "no"

    def __str__(self) -> str:
        """Format as ``+1.4 [+0.8, +2.0], p 0.003``."""
        text = f"{self.mean:+.1f}"
        if self.low is not None and self.high is not None:
            text += f" [{self.low:+.1f}, {self.high:+.1f}]"
        if self.p is not None:
            text += f", p {'< 0.001' if self.p < 0.001 else f'{self.p:.3f}'}"
        return text


def compare_seeds(better: Sequence[float], worse: Sequence[float] | float = 0.0) -> Comparison:
    """Return the paired t-test over seeds.

    Args:
        better: a figure for each seed.
        worse: the other's, of the same seeds in the same order; or a constant, such as a goal.

    Returns:
        Without interval and p-value for a single seed.
    """
    above = np.asarray(better, np.float64)
    if isinstance(worse, Sequence) and len(worse) != len(better):
        raise PolyglanceError(
            f"{len(better)} and {len(worse)} seeds cannot be paired: give the same seeds of both"
        )
    if not len(above):
        raise PolyglanceError("there is no seed to compare: give at least one")
    differences = above - np.asarray(worse, np.float64)
    mean, count = float(differences.mean()), len(differences)
    if count == 1:
        return Comparison(mean, None, None, None, 1)
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    return Comparison(mean, *_t_interval(mean, error, count - 1), count)


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Correct p-values for the number of comparisons that are read together (Holm, 1979).

    The smallest p-value is multiplied by their number, the next by one less, and so on; none
    becomes smaller than one before it. Those without a p-value do not count.

    Args:
        comparisons: all that one page or table claims.

    Returns:
        The same with corrected p-values, by which `Comparison.verdict` then decides. Intervals
        stay those of single comparisons.
    """
    known = [(c.p, number) for number, c in enumerate(comparisons) if c.p is not None]
    corrected = list(comparisons)
    least = 0.0
    for rank, (p, number) in enumerate(sorted(known)):
        least = max(least, min(1.0, (len(known) - rank) * p))
        corrected[number] = comparisons[number]._replace(p=least)
    return corrected


def compare_queries(
    better: npt.ArrayLike,
    worse: npt.ArrayLike,
    *,
    generator: np.random.Generator | None = None,
) -> Comparison:
    """Compare scores of the same queries by several seeds, both random and crossed.

    The difference of seed s and query q is a mean plus an effect of the seed, one of the query
    and a residual. With mean squares between seeds (A), between queries (B) and of residuals (E),
    the variance of the mean is (A + B - E) / (seeds x queries), here never below A's or B's own
    part, and its degrees of freedom are Satterthwaite's.

    Args:
        better: ``(seeds, queries)``; a figure is the mean over queries.
        worse: the same of the other.
        generator: resamples queries where there is one seed; by default a fixed one.

    Returns:
        The comparison. With one seed: a bootstrap interval and a sign-flip test over queries.
    """
    above, below = np.asarray(better, np.float64), np.asarray(worse, np.float64)
    if above.ndim != 2 or above.shape != below.shape or min(above.shape) < 1:
        raise PolyglanceError(
            f"scores of shapes {above.shape} and {below.shape} cannot be paired: give a row per"
            " seed and a column per query, the same of both"
        )
    differences = above - below
    seeds, queries = differences.shape
    mean = float(differences.mean())
    if queries < 2:
        return compare_seeds(above[:, 0].tolist(), below[:, 0].tolist())
    if seeds == 1:
        found = _resample(differences[0], generator or np.random.default_rng(0))
        return Comparison(mean, *found, seeds, queries, "queries")
    by_seed, by_query = differences.mean(1), differences.mean(0)
    between_seeds = queries * float(by_seed.var(ddof=1))
    between_queries = seeds * float(by_query.var(ddof=1))
    residuals = differences - by_seed[:, None] - by_query[None, :] + mean
    within = float((residuals**2).sum()) / ((seeds - 1) * (queries - 1))
    total = max(between_seeds + between_queries - within, between_seeds, between_queries)
    spread = (
        between_seeds**2 / (seeds - 1)
        + between_queries**2 / (queries - 1)
        + within**2 / ((seeds - 1) * (queries - 1))
    )
    freedom = max(total**2 / spread, seeds - 1) if spread > 0 else seeds - 1
    error = math.sqrt(total / (seeds * queries))
    return Comparison(mean, *_t_interval(mean, error, freedom), seeds, queries, "seeds and queries")


def image_scores(
    image_to_text: npt.ArrayLike,
    text_to_image: npt.ArrayLike,
    image_ids: npt.ArrayLike,
    num_images: int,
    ks: Sequence[int] = RECALL_AT,
) -> Floats:
    """Return each image's share of mR, in percent; their mean is mR.

    Args:
        image_to_text: rank of each image that has captions, in order.
        text_to_image: rank of each caption.
        image_ids: row of each caption's image.
        num_images: all images, those without captions included.
        ks: the recalls that mR averages.

    Returns:
        ``(num_images,)``: the image's own hits and those of its captions, weighted so that the
        plain mean over images is the mean of the recalls of both directions.
    """
    ids = np.asarray(image_ids, np.int64)
    captioned = np.flatnonzero(np.bincount(ids, minlength=num_images) > 0)
    of_images = _hits(image_to_text, ks)
    of_captions = _hits(text_to_image, ks)
    if len(of_images) != len(captioned) or len(of_captions) != len(ids):
        raise PolyglanceError(
            f"{len(of_images)} and {len(of_captions)} ranks do not fit {len(captioned)} images"
            f" with {len(ids)} captions: give the ranks of one evaluation"
        )
    scores = np.zeros(num_images)
    scores[captioned] = 50 * num_images / len(captioned) * of_images
    np.add.at(scores, ids, 50 * num_images / len(ids) * of_captions)
    return scores


def student_p(t: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def student_quantile(freedom: float, alpha: float = ALPHA) -> float:
    """Return the t whose two-sided p-value is ``alpha``."""
    logarithm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    peak = math.exp(logarithm) / math.sqrt(freedom * math.pi)
    t = 0.0
    for _ in range(200):  # Newton's method, which climbs from 0: the p-value is convex
        density = peak * math.exp(-(freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (student_p(t, freedom) - alpha) / (2 * density)
        t += step
        if abs(step) < 1e-12 * t:
            break
    return t


def _t_interval(mean: float, error: float, freedom: float) -> tuple[float, float, float]:
    """Return the interval of a mean with this standard error, and its p-value."""
    if error == 0:
        return mean, mean, 1.0 if mean == 0 else 0.0
    reach = student_quantile(freedom) * error
    return mean - reach, mean + reach, student_p(mean / error, freedom)


def _resample(differences: Floats, generator: np.random.Generator) -> tuple[float, float, float]:
    """Return the bootstrap interval of the mean over queries, and a sign-flip p-value."""
    count, means, flipped = len(differences), [], []
    for _ in range(0, RESAMPLES, 500):  # a block at a time: 500 x 1,000 queries are 4 MB
        drawn = generator.integers(count, size=(500, count))
        means.append(differences[drawn].mean(1))
        signs = generator.choice((-1.0, 1.0), size=(500, count))
        flipped.append((signs * differences).mean(1))
    low, high = np.quantile(np.concatenate(means), (ALPHA / 2, 1 - ALPHA / 2))
    observed = abs(differences.mean()) * (1 - 1e-12)  # a tie is as extreme
    extreme = int(np.count_nonzero(np.abs(np.concatenate(flipped)) >= observed))
    return float(low), float(high), (extreme + 1) / (RESAMPLES + 1)


def _hits(ranks: npt.ArrayLike, ks: Sequence[int]) -> Floats:
    """Return the mean over ks of whether a rank is within k."""
    within: Any = np.asarray(ranks)[:, None] <= np.asarray(ks)[None, :]
    return np.asarray(within.mean(1), np.float64)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side only
        return 1 - _incomplete_beta(1 - x, b, a)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + numerator * d) or tiny)
            c = (1 + numerator / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction
