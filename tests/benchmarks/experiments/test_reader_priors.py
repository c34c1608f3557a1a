"""Candidates' own parts of a reader's scores: found, predicted and taken off."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiments.reader_priors import (
    Language,
    _only,
    average,
    choose,
    compare,
    correct,
    learn,
)
from polyglance.evaluation.pair_scores import Candidates

NUM, LENGTH, WIDTH = 60, 20, 6


def make(own: float, seed: int = 0) -> Language:
    """Return pairs in which a candidate's vector decides a part of its score, of some weight."""
    generator = np.random.default_rng(seed)
    pictures = generator.normal(size=(NUM, WIDTH))
    captions = generator.normal(size=(NUM, WIDTH))
    match = generator.normal(size=(NUM, NUM)) + 2.5 * np.eye(NUM)
    # The right one and 19 others, three numbers apart.
    lists = (np.arange(NUM)[:, None] + 3 * np.arange(LENGTH)) % NUM
    of_captions, of_pictures = (
        np.take_along_axis(scores, lists, 1)
        for scores in (match + own * captions[:, 0], match.T + own * pictures[:, 1])
    )
    scores = np.concatenate([of_captions.ravel(), of_pictures.ravel()])
    cosines = np.zeros_like(scores)
    return Language(
        Candidates(lists, lists.copy(), scores, cosines), np.arange(NUM), pictures, captions
    )


def test_what_vectors_say_of_candidates_is_predicted_on_others_and_taken_off() -> None:
    plain, learned, test = make(0.0, 1), make(2.0, 2), make(2.0, 1)
    before = average([test], 4.0)["mR"]
    captions, pictures = learn([learned], 0.01)
    after = average([correct(test, captions, pictures, 1.0)], 4.0)["mR"]
    assert before < 0.8 * average([plain], 4.0)["mR"]
    assert after > 0.95 * average([plain], 4.0)["mR"]
    compared = compare([correct(test, captions, pictures, 1.0)], [test], 4.0)
    assert compared.mean == pytest.approx(after - before)
    assert compared.verdict == "yes"


def test_halves_have_their_own_pictures_and_captions_only() -> None:
    whole = make(0.0)
    half = np.arange(0, NUM, 2)
    part = _only(whole, half)
    texts, _ = part.split_scores()
    real = part.candidates.texts >= 0
    assert real.sum() == LENGTH // 2 * NUM // 2  # every second of a list is even
    before, _ = whole.split_scores()
    for row, numbers in enumerate(part.candidates.texts):
        kept = dict(zip(whole.candidates.texts[half[row]], before[half[row]], strict=True))
        for number, score, is_real in zip(numbers, texts[row], real[row], strict=True):
            assert not is_real or score == kept[half[number]]
    assert average([part], 4.0)["mR"] > average([whole], 4.0)["mR"]  # of fewer candidates
    (of_captions, lists), _ = part.means()
    assert lists.sum() == (LENGTH // 2 - 1) * NUM // 2  # but for those that belong together
    first = next(n for n in range(NUM // 2) if lists[n])
    own = [
        texts[row, place]
        for row, place in zip(*np.nonzero(part.candidates.texts == first), strict=True)
        if row != first
    ]
    assert of_captions[first] == np.mean(own)


def test_a_share_is_taken_off_where_it_helps() -> None:
    _, share, tried = choose([make(2.0)], 4.0)
    assert share == 1.0
    nothing = [score for name, score in tried.items() if name.endswith("share 0")]
    assert max(tried.values()) > max(nothing) + 5
    _, share, _ = choose([make(0.0)], 4.0)
    assert share < 1.0
