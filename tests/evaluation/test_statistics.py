"""Paired statistics: hand-computed cases, scipy's, and coverage and size by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.evaluation.statistics import (
    Comparison,
    compare_queries,
    compare_seeds,
    holm,
    image_scores,
    student_p,
    student_quantile,
)


def test_seeds_are_compared_by_a_paired_t_test() -> None:
    found = compare_seeds([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    # Differences 1, 2, 3: a standard error of 1 / sqrt(3), so t is 2 sqrt(3) with 2 degrees of
    # freedom, whose distribution has a closed form.
    t = 2 * math.sqrt(3)
    assert found.mean == 2
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    reach = 4.302652729911275 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((2 - reach, 2 + reach))
    assert found.verdict == "not decided"
    assert str(found) == "+2.0 [-0.5, +4.5], p 0.074"
    assert compare_seeds([5.0, 5.1, 4.9], 3.0).verdict == "yes"
    assert compare_seeds([1.0, 1.1, 0.9], 3.0).verdict == "no"


def test_one_seed_decides_nothing() -> None:
    found = compare_seeds([50.0], [10.0])
    assert (found.mean, found.p, found.verdict, str(found)) == (40.0, None, "not decided", "+40.0")


def test_equal_settings_are_not_decided_and_constant_gains_are() -> None:
    assert compare_seeds([1.0, 2.0], [1.0, 2.0]).verdict == "not decided"
    assert compare_seeds([1.0, 2.0], [0.0, 1.0]) == Comparison(1.0, 1.0, 1.0, 0.0, 2)


@pytest.mark.parametrize("freedom", [1, 2, 2.7, 9, 150, 1e5])
def test_student_s_distribution_is_scipy_s(freedom: float) -> None:
    special = pytest.importorskip("scipy.special")
    for t in (0.0, 0.3, 1.7, 4.0, 60.0):
        assert student_p(t, freedom) == pytest.approx(2 * special.stdtr(freedom, -t), abs=1e-10)
    assert student_quantile(freedom) == pytest.approx(special.stdtrit(freedom, 0.975), rel=1e-8)


def test_seeds_and_queries_by_hand() -> None:
    # Two seeds and two queries, whose effects add up: mean squares 4, 4 and 0.
    better = np.array([[1.0, 3.0], [3.0, 5.0]])
    found = compare_queries(better, np.zeros((2, 2)))
    assert (found.mean, found.seeds, found.queries) == (3, 2, 2)
    error, freedom = math.sqrt((4 + 4 - 0) / 4), (4 + 4) ** 2 / (4**2 / 1 + 4**2 / 1)
    assert found.p == pytest.approx(student_p(3 / error, freedom))
    assert found.high == pytest.approx(3 + student_quantile(freedom) * error)
    assert found.over == "seeds and queries"


@pytest.mark.parametrize(
    ("seed_effect", "query_effect"), [(1.0, 0.0), (0.3, 1.0), (0.0, 1.0), (0.1, 0.3)]
)
def test_intervals_cover_and_the_test_keeps_its_size(
    seed_effect: float, query_effect: float
) -> None:
    generator = np.random.default_rng(7)
    trials, covered, decided = 150, 0, 0
    for _ in range(trials):
        differences = (
            seed_effect * generator.standard_normal((3, 1))
            + query_effect * generator.standard_normal((1, 40))
            + generator.standard_normal((3, 40))
        )
        found = compare_queries(differences + 2.0, np.zeros_like(differences))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 2.0 <= found.high
        decided += compare_queries(differences, np.zeros_like(differences)).p < 0.05  # type: ignore[operator]
    # 95 % and 5 %, within three standard deviations of 150 trials.
    assert covered / trials >= 0.95 - 0.053
    assert decided / trials <= 0.05 + 0.053


def test_a_difference_of_every_seed_and_query_is_decided() -> None:
    generator = np.random.default_rng(0)
    worse = generator.random((3, 200))
    better = worse + 0.02 + 0.05 * generator.standard_normal(worse.shape)
    assert compare_queries(better, worse).verdict == "yes"
    assert compare_queries(worse, better).verdict == "no"
    # Paired: the same differences between shuffled queries drown in those among queries.
    assert compare_queries(better, worse[:, generator.permutation(200)]).verdict == "not decided"


def test_one_seed_is_compared_over_queries() -> None:
    generator = np.random.default_rng(0)
    worse = generator.random((1, 300))
    clear = compare_queries(worse + generator.normal(0.2, 0.5, worse.shape), worse)
    assert (clear.verdict, clear.over, clear.seeds) == ("yes", "queries", 1)
    assert clear.low is not None
    assert clear.high is not None
    assert clear.low < clear.mean < clear.high
    error = 0.5 / math.sqrt(300)
    assert clear.high - clear.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    none = compare_queries(worse + generator.normal(0.0, 0.5, worse.shape), worse)
    assert none.verdict == "not decided"


def test_images_share_out_mean_recall() -> None:
    generator = np.random.default_rng(0)
    image_ids = np.array([0, 0, 0, 2, 2, 3, 4, 4, 6, 6, 6, 6] * 3) % 7
    scores = generator.random((7, len(image_ids)))  # images 1 and 5 have no captions
    ranks = ranks_from_scores(scores, image_ids)
    shares = image_scores(ranks.image_to_text, ranks.text_to_image, image_ids, 7, ks=(1, 2, 5))
    assert shares.mean() == pytest.approx(summarise(ranks, (1, 2, 5)).mean_recall)
    assert shares[1] == shares[5] == 0


def test_p_values_are_corrected_for_their_number() -> None:
    """By hand: 0.01 x 4, 0.02 x 3, 0.03 x 2 (which may not be below 0.06), 0.9."""
    p_values = (0.03, 0.01, None, 0.9, 0.02)
    given = [Comparison(1.0, 0.5, 1.5, p, 3) for p in p_values]
    corrected = holm(given)
    assert [c.p for c in corrected] == pytest.approx([0.06, 0.04, None, 0.9, 0.06])
    assert [c.verdict for c in corrected] == [
        "not decided", "yes", "not decided", "not decided", "not decided",
    ]  # fmt: skip
    assert [c._replace(p=None) for c in corrected] == [c._replace(p=None) for c in given]
    assert holm([Comparison(1.0, 0.5, 1.5, 0.5, 3)] * 3)[0].p == 1.0
    assert holm([]) == []


def test_one_claim_of_many_is_rarely_decided_by_chance() -> None:
    """Of pages with ten claims and no effect, about one of twenty decides any."""
    p_values = np.random.default_rng(0).random((2000, 10))
    decided = 0
    for page in p_values:
        corrected = holm([Comparison(1.0, None, None, p, 3) for p in page.tolist()])
        decided += any(c.verdict == "yes" for c in corrected)
    assert decided / len(p_values) == pytest.approx(0.05, abs=0.015)


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(PolyglanceError, match="2 and 3 seeds cannot be paired"):
        compare_seeds([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(PolyglanceError, match="no seed to compare"):
        compare_seeds([], [])
    with pytest.raises(PolyglanceError, match="cannot be paired"):
        compare_queries(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(PolyglanceError, match="do not fit"):
        image_scores([1, 1], [1], [0], 1)
