"""The aligner against plain-loop implementations of its models, and against known links."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma as scipy_digamma

from polyglance.data.toy import ToyDataset
from polyglance.data.toy import align_captions as known_links
from polyglance.data.toy.semantics import COLOURS, SHAPES
from polyglance.errors import PolyglanceError
from polyglance.text.alignment import NULL, AlignerSettings, align
from polyglance.text.alignment.links import Symmetry
from polyglance.text.alignment.models import (
    MAX_JUMP,
    TENSION_RANGE,
    Cells,
    EncodedSentences,
    HmmModel,
    digamma,
    transpose_cells,
)

TINY = [
    (["the", "dog", "runs"], ["der", "hund", "rennt"]),
    (["the", "cat"], ["die", "katze"]),
    (["a", "dog"], ["ein", "hund"]),
    (["the", "red", "dog", "sleeps", "now"], ["jetzt", "schläft", "der", "rote", "hund"]),
    (["a", "cat", "sleeps"], ["eine", "katze", "schläft"]),
    (["dogs"], ["die", "hunde"]),
    ([], ["nichts"]),
    (["nothing", "here"], []),
]

Pair = tuple[list[str], list[str]]


def slow_fast_align(
    pairs: list[Pair], config: AlignerSettings
) -> tuple[dict[tuple[str, str], float], float, list[float], list[set[tuple[int, int]]]]:
    """fast_align's model as its paper writes it, cell by cell: t, tension, likelihoods, links."""
    together = {(e, f) for source, target in pairs for e in [NULL, *source] for f in target}
    t = dict.fromkeys(together, 1 / len({f for _, target in pairs for f in target}))
    tension, likelihoods = config.tension, []

    def feature(i: int, j: int, n: int, m: int) -> float:
        return -abs(i / n - j / m)

    def prior(j: int, n: int, m: int, tension: float) -> list[float]:
        weights = [math.exp(tension * feature(i, j, n, m)) for i in range(1, n + 1)]
        return [
            config.null_probability,
            *((1 - config.null_probability) * weight / sum(weights) for weight in weights),
        ]

    def scores(source: list[str], target: list[str], j: int) -> list[float]:
        p = prior(j, len(source), len(target), tension)
        return [p[i] * t[word, target[j - 1]] for i, word in enumerate([NULL, *source])]

    for _ in range(config.fast_align_iterations):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        likelihood, expected_links = 0.0, []
        for source, target in pairs:
            for j, word in enumerate(target, start=1):
                joint = scores(source, target, j)
                likelihood += math.log(sum(joint))
                for i, score in enumerate(joint):
                    counts[[NULL, *source][i], word] += score / sum(joint)
                    if i:
                        expected_links.append((score / sum(joint), i, j, len(source), len(target)))
        likelihoods.append(likelihood)
        totals: dict[str, float] = defaultdict(float)
        for e, f in together:
            totals[e] += counts[e, f] + config.alpha
        for e, f in together:
            count = counts[e, f] + config.alpha
            if config.alpha:
                t[e, f] = math.exp(scipy_digamma(count) - scipy_digamma(totals[e]))
            else:
                t[e, f] = max(count / totals[e], 1e-100) if totals[e] else 1e-100

        def slope(
            tension: float, expected_links: list[tuple[float, int, int, int, int]] = expected_links
        ) -> float:
            total = 0.0
            for gamma, i, j, n, m in expected_links:
                p = prior(j, n, m, tension)[1:]
                mean = sum(q * feature(k, j, n, m) for k, q in enumerate(p, start=1)) / sum(p)
                total += gamma * (feature(i, j, n, m) - mean)
            return total

        if config.learn_tension:  # by halving, which needs no derivative
            low, high = TENSION_RANGE
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (middle, high) if slope(middle) > 0 else (low, middle)
            tension = low
    links = []
    for source, target in pairs:
        chosen = set()
        for j in range(1, len(target) + 1):
            joint = scores(source, target, j)
            if best := joint.index(max(joint)):
                chosen.add((best - 1, j - 1))
        links.append(chosen)
    return t, tension, likelihoods, links


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("learn_tension", [True, False])
def test_fast_align_matches_a_plain_loop_implementation(alpha: float, learn_tension: bool) -> None:
    config = AlignerSettings(
        ibm1_iterations=0, fast_align_iterations=4, hmm_iterations=0, by_agreement=False,
        alpha=alpha, learn_tension=learn_tension, tension=2.0,
    )  # fmt: skip
    alignment = align(TINY, config)
    turned = [(target, source) for source, target in TINY]
    for pairs, table, links in (
        (TINY, alignment.forward, alignment.forward_links),
        (
            turned,
            alignment.backward,
            [[(j, i) for i, j in one] for one in alignment.backward_links],
        ),
    ):
        t, tension, likelihoods, expected = slow_fast_align(pairs, config)
        assert table.tension == pytest.approx(tension, abs=1e-7)
        assert table.log_likelihoods == pytest.approx(likelihoods, abs=1e-9)
        ours = {
            (table.sources[row], table.targets[column]): float(value)
            for row, column, value in zip(
                table.rows, table.columns, table.probabilities, strict=True
            )
        }
        assert ours.keys() == t.keys()
        assert all(ours[key] == pytest.approx(value, abs=1e-9) for key, value in t.items())
        assert [set(one) for one in links] == expected


sentences = st.lists(st.sampled_from("abcd"), min_size=0, max_size=4)


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6))
@settings(max_examples=40)
def test_likelihood_never_decreases_without_a_prior(pairs: list[Pair]) -> None:
    if not any(source for source, _ in pairs) or not any(target for _, target in pairs):
        with pytest.raises(PolyglanceError, match="no words"):
            align(pairs)
        return
    alignment = align(
        pairs,
        AlignerSettings(ibm1_iterations=0, fast_align_iterations=8, hmm_iterations=0, alpha=0),
    )
    for table in (alignment.forward, alignment.backward):
        assert (np.diff(table.log_likelihoods) > -1e-9).all()
    for (source, target), links in zip(pairs, alignment.links, strict=True):
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in links)


def test_hmm_sums_over_all_alignments() -> None:
    """Enumerate every alignment of a pair; the null word keeps the state."""
    pairs = [pair for pair in TINY if len(pair[0]) < 5]
    cells = Cells(
        EncodedSentences.from_words([source for source, _ in pairs]),
        EncodedSentences.from_words([t for _, t in pairs]),
    )
    rng = np.random.default_rng(1)
    translation = rng.random(len(cells.entry))
    model = HmmModel(cells, null=0.2)
    model.jumps = rng.random(2 * MAX_JUMP + 1)
    posterior, likelihood = model.e_step(translation)
    total, expected = 0.0, np.zeros(2 * MAX_JUMP + 1)
    for pair, (source, target) in enumerate(pairs):
        n, m = len(source), len(target)
        emission = translation[cells.corner[pair] :][: m * (n + 1)].reshape(m, n + 1)
        sums, all_links = 0.0, np.zeros((m, n + 1))
        moves_of_pair = np.zeros_like(expected)
        for links in product(range(n + 1), repeat=m):
            p, last, moves = 1.0, 0, np.zeros_like(expected)
            for j, i in enumerate(links):
                if i:
                    jumps = [model.jumps[k - last + MAX_JUMP] for k in range(1, n + 1)]
                    p *= 0.8 * jumps[i - 1] / sum(jumps) * emission[j, i]
                    moves[i - last + MAX_JUMP] += 1
                    last = i
                else:
                    p *= 0.2 * emission[j, 0]
            sums += p
            moves_of_pair += p * moves
            all_links[np.arange(m), list(links)] += p
        if m:
            total += math.log(sums)
            expected += moves_of_pair / sums
            ours = posterior[cells.corner[pair] :][: m * (n + 1)].reshape(m, n + 1)
            np.testing.assert_allclose(ours, all_links / sums, atol=1e-9)
    assert likelihood == pytest.approx(total, abs=1e-9)
    model.m_step()
    np.testing.assert_allclose(model.jumps, (expected + 1) / (expected + 1).sum(), atol=1e-9)


def test_transpose_maps_cells_to_the_other_direction() -> None:
    source, target = (
        EncodedSentences.from_words([s for s, _ in TINY]),
        EncodedSentences.from_words([t for _, t in TINY]),
    )
    forward, backward = Cells(source, target), Cells(target, source)
    ours, theirs = transpose_cells(forward, backward)
    assert len(ours) == sum(len(s) * len(t) for s, t in TINY)
    pair, row = (forward.by_cell(x)[ours] for x in (forward.rectangle, forward.row))
    other_pair, other_row = (
        backward.by_cell(x)[theirs] for x in (backward.rectangle, backward.row)
    )
    assert (pair == other_pair).all()
    assert (row + 1 == backward.column[theirs]).all()
    assert (forward.column[ours] == other_row + 1).all()


def test_digamma() -> None:
    x = np.concatenate([np.geomspace(1e-6, 1e6, 400), [1.0]])
    np.testing.assert_allclose(digamma(x), scipy_digamma(x), rtol=1e-12, atol=1e-12)
    assert digamma(np.array([1.0]))[0] == pytest.approx(-0.5772156649015329)


@pytest.mark.parametrize(
    ("language", "min_recall"), [("de", 0.95), ("ja", 0.8), ("ar", 0.85), ("cs", 0.98)]
)
def test_known_links_of_the_toy_dataset_are_recovered(language: str, min_recall: float) -> None:
    """Only content words have known links; function words are not counted."""
    pictures = list(ToyDataset(seed=3).pictures(400))
    captions = [(picture.captions["en"][0], picture.captions[language][0]) for picture in pictures]
    words = [
        ([word.lower() for word in here.words], [word.lower() for word in there.words])
        for here, there in captions
    ]
    predicted = align(words).links
    wanted = [set(known_links(here, there)) for here, there in captions]
    hits = sum(len(known & set(links)) for known, links in zip(wanted, predicted, strict=True))
    assert hits / sum(map(len, wanted)) > min_recall
    # and hardly a colour or a shape is linked to another
    wrong = total = 0
    for (here, there), links in zip(captions, predicted, strict=True):
        for i, j in links:
            one, other = here.tokens[i], there.tokens[j]
            if {one.sense, other.sense} <= {*COLOURS, *SHAPES}:
                total += 1
                wrong += one.sense != other.sense
    assert wrong / total < 0.05


def test_agreement_recovers_more_links_than_fast_align() -> None:
    pictures = list(ToyDataset(seed=5).pictures(300))
    captions = [(picture.captions["en"][0], picture.captions["de"][0]) for picture in pictures]
    words = [(list(here.words), list(there.words)) for here, there in captions]
    wanted = [set(known_links(here, there)) for here, there in captions]

    def score(config: AlignerSettings) -> float:
        predicted = align(words, config, symmetry="intersection").links
        return sum(len(k & set(links)) for k, links in zip(wanted, predicted, strict=True))

    assert score(AlignerSettings()) > score(AlignerSettings.fast_align())


def test_translation_tables() -> None:
    alignment = align(TINY * 5)
    assert next(iter(alignment.forward.translations("dog"))) == "hund"
    assert next(iter(alignment.backward.translations("katze"))) == "cat"
    assert alignment.forward.translations("bird") == {}
    assert sum(alignment.forward.translations("dog").values()) <= 1 + 1e-9
    shares = list(alignment.forward.translations("the", min_probability=0).values())
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("symmetry", ["intersection", "union", "grow-diag-final-and"])
def test_resymmetrising_equals_aligning_with_that_heuristic(symmetry: Symmetry) -> None:
    alignment = align(TINY)
    assert alignment.symmetrise(symmetry) == align(TINY, symmetry=symmetry).links
    assert alignment.links[-2:] == [[], []]


@pytest.mark.parametrize(
    "config",
    [
        {"ibm1_iterations": 0, "fast_align_iterations": 0, "hmm_iterations": 0},
        {"hmm_iterations": -1},
        {"null_probability": 0},
        {"null_probability": 1},
        {"tension": -1},
        {"alpha": -1},
    ],
)
def test_invalid_settings_are_refused(config: dict[str, float]) -> None:
    with pytest.raises(PolyglanceError, match="aligner"):
        AlignerSettings(**config)  # type: ignore[arg-type]


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(PolyglanceError, match="no words to align"):
        align([])
