from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.consistency import (
    ConsistencyTraining,
    LearnedConsistency,
    average_scores,
    learn_consistency,
    ranking_loss,
)


def noisy_scores(
    seed: int, noise: tuple[float, ...]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores of 60 images with two captions each, with this much noise per language."""
    generator = np.random.default_rng(seed)
    image_ids = np.repeat(np.arange(60), 2)
    true = (image_ids == np.arange(60)[:, None]) * 0.3
    blur = np.array(noise)[:, None, None] * generator.normal(size=(len(noise), 60, 120))
    return np.clip(true + blur, -1, 1).astype(np.float32), image_ids


def recall(scores: NDArray[np.float32], image_ids: NDArray[np.int64]) -> float:
    return summarise(ranks_from_scores(scores, image_ids)).mean_recall


def test_average_ignores_languages_without_a_score() -> None:
    scores = np.array([[[0.2, np.nan]], [[0.6, 0.5]], [[np.nan, np.nan]]])
    np.testing.assert_allclose(average_scores(scores), [[0.4, 0.5]])
    assert np.isnan(average_scores(scores[2:])).all()


def test_averaging_translations_helps_and_learned_weights_help_more() -> None:
    noise = (0.1, 0.1, 0.3, 0.5)
    fitted = learn_consistency(*noisy_scores(0, noise), ConsistencyTraining(learning_rate=1e-2))
    scores, image_ids = noisy_scores(1, noise)
    alone = max(recall(language, image_ids) for language in scores)
    averaged = recall(average_scores(scores), image_ids)
    learned = recall(fitted.combine(scores), image_ids)
    assert recall(average_scores(scores[:2]), image_ids) > alone + 5
    assert learned > averaged + 5
    trust = (fitted.output.weight @ fitted.languages.weight)[0].tolist()
    assert min(trust[:2]) > trust[2] > trust[3]


def test_learned_consistency_has_the_papers_parameters_and_starts_as_the_average() -> None:
    model = LearnedConsistency(10, initialisation="constant")
    assert sum(p.numel() for p in model.parameters()) == 352
    scores, image_ids = noisy_scores(0, (0.2,) * 10)
    ranks, averaged = (
        ranks_from_scores(s, image_ids) for s in (model.combine(scores), average_scores(scores))
    )
    assert (ranks.text_to_image == averaged.text_to_image).mean() > 0.99  # except for rounding
    scores[3, 5, 7] = np.nan
    assert np.isfinite(model.combine(scores)).all()
    drawn = LearnedConsistency(10).languages.weight
    assert drawn.unique().numel() == 320
    assert drawn.min() > 0  # no unit is cut off
    assert drawn.mean().item() == pytest.approx(0.1, abs=0.02)


def test_dead_units_start_anew() -> None:
    scores, image_ids = noisy_scores(0, (0.1, 0.3))
    model = LearnedConsistency(2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.languages.weight[:5] = -1
    dead = model.dead_units([torch.from_numpy(scores)])
    assert dead.tolist() == [True] * 5 + [False] * 27
    others = model.languages.weight[5:].clone()
    model.reset_units(dead)
    assert not model.dead_units([torch.from_numpy(scores)]).any()
    assert torch.equal(model.languages.weight[5:], others)
    rough = ConsistencyTraining("adam", 1.0, iterations=3)  # steps that turn weights negative
    assert (
        not learn_consistency(scores, image_ids, rough).dead_units([torch.from_numpy(scores)]).any()
    )


def test_saved_weights_are_the_same_network() -> None:
    scores, image_ids = noisy_scores(0, (0.1, 0.3, 0.2))
    learned = learn_consistency(scores, image_ids)
    network = learned.network()
    np.testing.assert_allclose(network.combine(scores), learned.combine(scores), atol=1e-6)
    again = LearnedConsistency.from_network(network)
    np.testing.assert_array_equal(again.combine(scores), learned.combine(scores))


def test_learned_consistency_is_trained_with_equation_3() -> None:
    scores, image_ids = noisy_scores(0, (0.1, 0.4))
    combined = average_scores(scores)
    from_pictures, from_sentences = [], []
    for caption, own in enumerate(image_ids):
        right = combined[own, caption]
        wrong = np.sort(combined[own, image_ids != own])[-10:]
        from_pictures += list(np.maximum(0, 0.05 - right + wrong))
        wrong = np.sort(np.delete(combined[:, caption], own))[-10:]
        from_sentences += list(np.maximum(0, 0.05 - right + wrong))
    expected = np.mean(from_pictures) + 1.5 * np.mean(from_sentences)
    fast = ranking_loss(torch.from_numpy(combined), torch.from_numpy(image_ids))
    assert fast.item() == pytest.approx(expected, abs=1e-6)


def test_scores_without_an_image_per_caption_are_refused() -> None:
    scores, image_ids = noisy_scores(0, (0.1, 0.1))
    with pytest.raises(PolyglanceError, match="languages x images x captions"):
        learn_consistency(scores, image_ids[:-1])


def test_captions_without_scores_are_ignored() -> None:
    noise = (0.1, 0.3)
    scores, image_ids = noisy_scores(0, noise)
    known = np.delete(scores, [4, 9], axis=2), np.delete(image_ids, [4, 9])
    expected = learn_consistency(*known)
    scores[:, :, [4, 9]] = np.nan
    learned = learn_consistency(scores, image_ids)
    for one, other in zip(learned.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    combined = learned.combine(scores)
    assert np.isfinite(combined).all()
    assert np.unique(combined[:, 4]).size == 1
    np.testing.assert_array_equal(np.delete(combined, [4, 9], axis=1), learned.combine(known[0]))
    with pytest.raises(PolyglanceError, match="no language has a score of any"):
        learn_consistency(np.full_like(scores, np.nan), image_ids)
