"""Probabilities fitted on a synthetic model: queries and pictures that are noisy class vectors."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyglance.encoders.calibration import (
    FEATURES,
    PEOPLE,
    POOLED,
    Background,
    Calibration,
    QueryStatistics,
    TopHits,
)
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.calibration import summarise
from polyglance.evaluation.calibration_data import (
    LabelledPicture,
    calibrate,
    caption_words,
    read_labelled_pictures,
)
from polyglance.evaluation.calibration_trials import CalibrationData, CalibrationQuery, make_trials
from polyglance.evaluation.logistic import fit_logistic
from polyglance.evaluation.nonsense import nonsense_queries, random_words
from polyglance.text.spelling import shipped_word_lists

NAMES = ("cat", "dog", "person", "train")


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@cache
def data() -> CalibrationData:
    """Pictures of four classes, captions near them, and queries that point anywhere."""
    generator = np.random.default_rng(0)
    count, width = 400, 32
    classes = unit(generator.normal(size=(len(NAMES), width)))
    kinds = generator.integers(len(NAMES), size=count)
    own = generator.normal(size=(count, width)) / np.sqrt(width)
    pictures = unit(classes[kinds] + own)
    queries, texts, surprisals = [], [], []
    for number in range(count):
        queries.append(CalibrationQuery("caption", ("en", "de")[number % 2], "caption", number))
        noise = generator.normal(size=width) / np.sqrt(width)
        texts.append(pictures[number] + (0.4 if number % 2 else 0.8) * noise)
        surprisals.append(2.4)
    for label, name in enumerate(NAMES):
        queries.append(CalibrationQuery(name, "en", "label", label=label))
        texts.append(classes[label])
        surprisals.append(2.4)
    for _ in range(100):
        queries.append(CalibrationQuery("xkcd", None, "nonsense"))
        texts.append(generator.normal(size=width))
        surprisals.append(4.0)
    labels = np.eye(len(NAMES), dtype=bool)[kinds]
    return CalibrationData(pictures, labels, NAMES, queries, unit(np.array(texts)), surprisals)


@cache
def calibrated() -> tuple[Calibration, dict[str, Any]]:
    return calibrate(data())


def test_trials_hold_what_they_say() -> None:
    every = np.ones(len(data().pictures), bool)
    trials = make_trials(
        data(), every, range(len(data().queries)), np.random.default_rng(0), sizes=(20, 200)
    )
    by_kind = {trial.kind for trial in trials}
    assert by_kind == {"match", "absent", "unseen", "label", "label absent", "nonsense"}
    for trial in trials:
        assert len(trial.cosines) <= (2 if trial.kind == "match" and trial.size == 20 else 10)
        assert (np.diff(trial.cosines) <= 0).all()
        if trial.kind == "match":
            assert np.nansum(trial.matches) <= 1
        elif trial.kind != "label":
            assert (trial.matches == 0).all()


def test_probabilities_find_matches_and_refuse_nonsense() -> None:
    calibration, report = calibrated()
    assert report["match"]["above"] > 0.85
    assert report["nonsense"]["above"] < 0.1
    assert set(calibration.coefficients) == {POOLED, "de", "en"}
    assert all(0 < calibration.fold(code) < 1 for code in ("de", "en", "fr", None))
    # What one language lacks, the others bring.
    statistics = calibration.statistics(data().texts[0], 2.4)
    found = calibration.probabilities(np.array([0.9, 0.5, 0.1]), statistics, 100, "fr")
    assert (np.diff(found) < 0).all()
    assert found == pytest.approx(
        calibration.probabilities(np.array([0.9, 0.5, 0.1]), statistics, 100)
    )


def test_strange_spelling_and_large_libraries_lower_the_probability() -> None:
    calibration, _ = calibrated()
    cosine = np.array([0.6])

    def probability(size: int = 100, surprisal: float = 2.4) -> float:
        statistics = calibration.statistics(data().texts[0], surprisal)
        return float(calibration.probabilities(cosine, statistics, size)[0])

    assert probability(surprisal=4.0) < probability()
    assert probability(surprisal=1.0) == probability(surprisal=2.0)
    assert probability(size=3000) < probability(size=30)
    assert probability(size=1) == probability(size=10)


def test_the_direction_of_people_tells_pictures_apart() -> None:
    calibration, _ = calibrated()
    along = data().pictures @ calibration.directions[PEOPLE]
    people = data().labels[:, NAMES.index("person")]
    assert people[np.argsort(-along)[:50]].mean() > 0.95
    assert people[np.argsort(along)[:50]].mean() == 0


def test_a_hit_is_less_probable_where_the_best_is_no_better() -> None:
    calibration, _ = calibrated()
    statistics = calibration.statistics(data().texts[0], 2.4)
    cosines = np.array([0.6, 0.5])
    alone = calibration.probabilities(cosines, statistics, 100)
    better = calibration.top_hits(np.array([0.9, 0.6, 0.5]))
    beside = calibration.probabilities(cosines, statistics, 100, top=better)
    assert (beside > alone).all()
    assert beside[0] > beside[1]


def test_a_background_sums_up_cosines() -> None:
    vectors, picture = data().pictures[:40], data().pictures[50]
    scores = [float(vector @ picture) for vector in vectors]
    whole = Background.of(vectors, vectors.shape[1])
    assert whole.compare(picture) == pytest.approx((np.mean(scores), np.std(scores)), abs=1e-5)
    # Fewer directions leave the mean as it is and explain less of the rest.
    fewer = Background.of(vectors, 2)
    assert fewer.compare(picture)[0] == pytest.approx(np.mean(scores), abs=1e-5)
    assert fewer.compare(picture)[1] <= np.std(scores) + 1e-5
    kept = np.square(fewer.factor).sum() / np.square(whole.factor).sum()
    best = np.sort(np.linalg.eigvalsh(np.cov(vectors.T, bias=True)))[::-1]
    assert kept == pytest.approx(best[:2].sum() / best.sum(), abs=1e-4)


def test_top_hits_describe_the_best_picture_and_the_tenth_hit() -> None:
    calibration, _ = calibrated()
    cosines = np.linspace(0.9, -0.2, 12)
    picture = data().pictures[7]
    top = calibration.top_hits(cosines, picture)
    assert calibration.captions is not None
    assert (top.best, top.tenth) == (0.9, cosines[9])
    assert (top.mean, top.deviation) == calibration.captions.compare(picture)
    assert calibration.top_hits(cosines[:3]).tenth == cosines[2]
    # A picture that nobody knows is a usual one: no product of its features counts.
    usual = calibration.features(cosines[:1], calibration.statistics(data().texts[0]), 100,
                                 calibration.top_hits(cosines))[0]  # fmt: skip
    assert usual[8:10] == pytest.approx(calibration.center[8:10])
    assert usual[-2] == pytest.approx(0)


def test_features_are_multiplied_but_the_cosine() -> None:
    calibration, _ = calibrated()
    query, top = calibration.statistics(data().texts[0], 3.0), TopHits(0.9, 0.4, 0.1, 0.2)
    low, high = calibration.features(np.array([0.1, 0.8]), query, 300, top)
    changed = np.flatnonzero(low != high)
    assert [FEATURES[number] for number in changed] == ["cosine", "cosine x library size"]
    values = (low[: len(FEATURES)] - calibration.center) / calibration.scale
    kept = np.delete(values, changed)
    products = [a * b for n, a in enumerate(kept) for b in kept[n:]]
    assert low[len(FEATURES) : -1] == pytest.approx(products)
    assert low[-1] == 1


@pytest.mark.parametrize("known", [6, 7])
def test_calibrations_of_fewer_features_are_read(known: int) -> None:
    generator = np.random.default_rng(0)
    coefficients = {code: generator.normal(size=known + 1) for code in (POOLED, "de")}
    background = data().pictures[:20]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        background=np.round(background * 127).astype(np.int8),
        **{f"language.{code}": np.append(value, 0.4) for code, value in coefficients.items()},
    )
    again = Calibration.from_bytes(file.getvalue())
    query = QueryStatistics(0.1, 0.2, 1.5)
    cosines = np.array([0.6, 0.3])
    row = np.array([0.6, 0.1, 0.2, 2.0, 1.2, 1.5, 0.6])[:known]
    logit = row @ coefficients["de"][:-1] + coefficients["de"][-1]
    found = again.probabilities(cosines, query, 100, "de")
    assert found[0] == pytest.approx(1 / (1 + np.exp(-logit)))
    assert again.folds == {POOLED: 0.4, "de": 0.4}


def test_a_calibration_is_read_as_it_was_written() -> None:
    calibration, _ = calibrated()
    again = Calibration.from_bytes(calibration.to_bytes())
    assert again.folds == calibration.folds
    for vector in data().pictures[:5]:
        assert again.background.compare(vector) == pytest.approx(
            calibration.background.compare(vector), abs=0.005
        )
    query = QueryStatistics(0.0, 0.1, 0.0)
    values = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(
        again.probabilities(values, query, 50, "de"),
        calibration.probabilities(values, query, 50, "de"),
    )
    with pytest.raises(DataError, match=r"my\.npz is not a calibration.*polyglance calibrate"):
        Calibration.from_bytes(b"no archive", "my.npz")


def test_pictures_with_captions_alike_are_not_absent() -> None:
    pictures = [
        LabelledPicture(Path("a"), {"en": ("a lighthouse on a cliff",)}),
        LabelledPicture(Path("b"), {"en": ("two lighthouses",)}),
        LabelledPicture(Path("c"), {"en": ("a kitchen with a cliff",)}),
        LabelledPicture(Path("d"), {"de": ("eine Küche",)}),
        LabelledPicture(Path("e"), {"en": ("kitchen",)}),
    ]
    words = caption_words(pictures)
    assert words[0] @ words[1] > 0.1
    assert words[0] @ words[4] == 0
    assert not words[3].any()
    plain = data()
    same = np.tile(np.float32([1.0, 0.0]), (len(plain.pictures), 1))
    every = np.ones(len(plain.pictures), bool)
    for table, kinds in ((None, {"match", "absent", "unseen"}), (same, {"match", "unseen"})):
        trials = make_trials(
            replace(plain, words=table), every, [0], np.random.default_rng(0), sizes=(100,)
        )
        assert {trial.kind for trial in trials} == kinds


def test_logistic_regression_is_at_its_optimum_and_within_limits() -> None:
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.normal(size=(200, 2)), np.ones(200)])
    y = (x @ [-1.0, 2.0, 0.5] + generator.logistic(size=200) > 0).astype(np.float64)
    weights, prior = generator.random(200), np.array([0.3, 0.1, 0.0])
    for limits, free in ((None, [0, 1, 2]), ({0: 0.5, 1: None}, [2]), ({1: 0.5}, [0, 1, 2])):
        value = fit_logistic(x, y, weights, prior, 0.7, limits)
        p = 1 / (1 + np.exp(-x @ value))
        gradient = x.T @ (weights * (p - y)) + 0.7 * (value - prior)
        np.testing.assert_allclose(gradient[free], 0, atol=1e-6)
        if limits == {0: 0.5, 1: None}:
            assert value[:2].tolist() == [0.5, 0.0]


def test_random_words_are_words() -> None:
    made = random_words(12, np.random.default_rng(0))
    lists = shipped_word_lists()
    assert len(made) == 12
    assert all(word in lists.words(code) for text, code in made for word in text.split())


def test_too_few_pictures_are_refused() -> None:
    small = CalibrationData(
        data().pictures[:50], data().labels[:50], NAMES, data().queries[:50], data().texts[:50],
        data().surprisals[:50],
    )  # fmt: skip
    with pytest.raises(PolyglanceError, match="at least 256 pictures"):
        calibrate(small)


def test_summaries_count_queries_and_matches() -> None:
    calibration, _ = calibrated()
    every = np.ones(len(data().pictures), bool)
    trials = make_trials(data(), every, [0, 1, 450], np.random.default_rng(0), sizes=(100,))
    report = summarise(data(), [(calibration, trials)])
    assert report["nonsense"]["count"] == 1
    assert report["match"]["library size"]["100"]["count"] == report["match"]["count"] <= 2


def test_pictures_are_read_with_labels_or_get_them_from_captions(tmp_path: Path) -> None:
    manifest, labels = tmp_path / "a.jsonl", tmp_path / "labels.jsonl"
    manifest.write_text(
        '{"image": "images/1.webp", "captions": {"en": ["Two dogs run."], "deu": ["Hunde"]}}\n'
        '{"image": "images/2.webp", "captions": {"en": ["A boat."]}}\n'
        '{"image": "images/2.webp", "captions": {"en": ["A ship."]}}\n'
    )
    labels.write_text('{"image": "images/2.webp", "labels": ["boat", "person"]}\n')
    first, second = read_labelled_pictures([manifest], [labels])
    assert first.path == tmp_path / "images" / "1.webp"
    assert set(first.captions) == {"en", "de"}
    assert first.labels == {"dog"}
    assert second.labels == {"boat", "person"}
    assert second.captions["en"] == ("A boat.", "A ship.")
    with pytest.raises(DataError, match="cannot be read"):
        read_labelled_pictures([tmp_path / "none.jsonl"])


def test_nonsense_is_of_several_kinds_and_reproducible() -> None:
    made = nonsense_queries(200, ["a dog runs"], np.random.default_rng(1))
    assert made == nonsense_queries(200, ["a dog runs"], np.random.default_rng(1))
    kinds = {kind for _, kind in made}
    assert {"Latin", "keyboard", "shuffled", "Han"} <= kinds
    assert len(made) == 200
    assert all(text.strip() for text, _ in made)
