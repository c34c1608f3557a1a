from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.consistency import (
    LearnedConsistency,
    average_scores,
    learn_consistency,
    ranking_loss,
)


def world(seed: int, noise: tuple[float, ...]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores of 60 pictures and two captions each, blurred by so much in each language."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(60), 2)
    true = (owner == np.arange(60)[:, None]) * 0.3
    blur = np.array(noise)[:, None, None] * generator.normal(size=(len(noise), 60, 120))
    return np.clip(true + blur, -1, 1).astype(np.float32), owner


def recall(scores: NDArray[np.float32], owner: NDArray[np.int64]) -> float:
    return summarise(ranks_from_scores(scores, owner)).mean_recall


def test_the_average_of_all_languages_that_say_something() -> None:
    scores = np.array([[[0.2, np.nan]], [[0.6, 0.5]], [[np.nan, np.nan]]])
    np.testing.assert_allclose(average_scores(scores), [[0.4, 0.5]])
    assert np.isnan(average_scores(scores[2:])).all()


def test_translations_help_and_knowing_whom_to_trust_helps_more() -> None:
    noise = (0.1, 0.1, 0.3, 0.5)
    fitted = learn_consistency(*world(0, noise))
    scores, owner = world(1, noise)
    alone = max(recall(language, owner) for language in scores)
    averaged = recall(average_scores(scores), owner)
    learned = recall(fitted.combine(scores), owner)
    assert recall(average_scores(scores[:2]), owner) > alone + 5
    assert learned > averaged + 5
    trust = (fitted.output.weight @ fitted.languages.weight)[0].tolist()
    assert min(trust[:2]) > trust[2] > trust[3]


def test_it_has_the_parameters_that_the_paper_counts_and_begins_as_the_average() -> None:
    model = LearnedConsistency(10)
    assert sum(p.numel() for p in model.parameters()) == 352
    scores, owner = world(0, (0.2,) * 10)
    ranks, averaged = (
        ranks_from_scores(s, owner) for s in (model.combine(scores), average_scores(scores))
    )
    assert (ranks.text_to_image == averaged.text_to_image).mean() > 0.99  # but for rounding
    scores[3, 5, 7] = np.nan
    assert np.isfinite(model.combine(scores)).all()
    drawn = LearnedConsistency(10, start="random").languages.weight
    assert drawn.unique().numel() == 320


def test_it_is_trained_with_equation_3_over_everything() -> None:
    scores, owner = world(0, (0.1, 0.4))
    together = average_scores(scores)
    from_pictures, from_sentences = [], []
    for caption, own in enumerate(owner):
        right = together[own, caption]
        wrong = np.sort(together[own, owner != own])[-10:]
        from_pictures += list(np.maximum(0, 0.05 - right + wrong))
        wrong = np.sort(np.delete(together[:, caption], own))[-10:]
        from_sentences += list(np.maximum(0, 0.05 - right + wrong))
    expected = np.mean(from_pictures) + 1.5 * np.mean(from_sentences)
    fast = ranking_loss(torch.from_numpy(together), torch.from_numpy(owner))
    assert fast.item() == pytest.approx(expected, abs=1e-6)


def test_scores_without_their_owners_are_refused() -> None:
    scores, owner = world(0, (0.1, 0.1))
    with pytest.raises(PolyglanceError, match="languages x images x captions"):
        learn_consistency(scores, owner[:-1])


def test_a_caption_that_no_language_knows_teaches_nothing() -> None:
    noise = (0.1, 0.3)
    scores, owner = world(0, noise)
    known = np.delete(scores, [4, 9], axis=2), np.delete(owner, [4, 9])
    expected = learn_consistency(*known)
    scores[:, :, [4, 9]] = np.nan
    found = learn_consistency(scores, owner)
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    together = found.combine(scores)
    assert np.isfinite(together).all()
    assert np.unique(together[:, 4]).size == 1
    np.testing.assert_array_equal(np.delete(together, [4, 9], axis=1), found.combine(known[0]))
    with pytest.raises(PolyglanceError, match="no language has a score of any"):
        learn_consistency(np.full_like(scores, np.nan), owner)
