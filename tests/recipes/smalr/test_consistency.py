"""Cross-lingual consistency: scores by language, and training on validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers.toy_lexicon import toy_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.consistency import (
    ConsistencyTraining,
    Initialisation,
    LearnedConsistency,
    ranking_loss,
)
from polyglance.recipes.smalr import consistency_choice
from polyglance.recipes.smalr.consistency import (
    consistency_recalls,
    scores_by_dataset,
    scores_by_dictionary,
)
from polyglance.recipes.smalr.consistency_choice import (
    ScoreTable,
    choose_consistency,
    consistency_choices,
    mean_recall,
)

IMAGES = 40


def test_consistency_is_trained_on_validation() -> None:
    """One language is right in validation alone, the other in test alone."""
    generator = torch.Generator().manual_seed(0)
    image_ids = np.arange(IMAGES)
    right = torch.eye(IMAGES) * 0.5

    def noise() -> torch.Tensor:
        return torch.rand(IMAGES, IMAGES, generator=generator) - 0.5

    validation, test = torch.stack([right, noise()]), torch.stack([noise(), right])
    training = ConsistencyTraining(iterations=12)
    found, networks = consistency_recalls(
        lambda _: validation,
        lambda _: test,
        {"en": (image_ids, image_ids), "de": (image_ids, image_ids)},
        training,
    )
    assert 40 < found["clc-a"]["en"]["mR"] < 100
    for way in ("clc-c", "clc-c-paper", "clc-c-search", "clc-c-paper-search"):
        assert found[way]["de"]["mR"] < found["clc-a"]["de"]["mR"] - 5
    assert set(networks) == {"en", "de", "shared"}
    assert {report["dead_units"] for report in found["training"].values()} == {0}
    alone = {"en": (image_ids, image_ids)}
    same, _ = consistency_recalls(lambda _: test, lambda _: test, alone, training)
    assert same["clc-c"]["average"]["mR"] > same["clc-a"]["average"]["mR"] + 5


def collapsing_scores(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores of 60 images in seven languages, many wrong ones higher than the right."""
    generator = torch.Generator().manual_seed(seed)
    image_ids = torch.arange(60).repeat_interleave(3)
    right = 0.05 * (image_ids == torch.arange(60)[:, None])
    scores = right + 0.1 * torch.randn(7, 60, 180, generator=generator)
    return scores.clamp(-1, 1), image_ids


def test_adam_with_a_constant_start_no_longer_ends_at_zero() -> None:
    """Adam at 1e-2 made all 32 equal units negative within 30 steps: every score was 0."""
    before = LearnedConsistency(7, initialisation="constant")
    optimiser = torch.optim.Adam(before.parameters(), lr=1e-2)
    scores, image_ids = collapsing_scores(0)
    for _ in range(30):
        optimiser.zero_grad()
        ranking_loss(before(scores), image_ids).backward()
        optimiser.step()
    assert before.dead_units([scores]).all()
    assert mean_recall(before, (scores, image_ids)) < 1
    test = collapsing_scores(1)
    average = mean_recall(LearnedConsistency(7, initialisation="constant"), test)
    initialisations: tuple[Initialisation, ...] = ("constant", "random")
    for initialisation in initialisations:
        paper, _ = consistency_choices(ConsistencyTraining(initialisation=initialisation))
        chosen = choose_consistency([(scores, image_ids)], paper)
        assert not chosen.module.dead_units([scores]).any()
        assert mean_recall(chosen.module, test) > average - 0.5
        units = chosen.module.languages.weight.unique(dim=0)
        assert len(units) == (1 if initialisation == "constant" else 32)


def test_optimisers_are_compared_on_images_that_they_did_not_learn_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned_from: list[set[float]] = []

    def train(tables: list[ScoreTable], *_: Any, **__: Any) -> LearnedConsistency:
        learned_from.append(set(tables[0][0].flatten().tolist()))
        return LearnedConsistency(2, initialisation="constant")

    def measure(_: LearnedConsistency, table: ScoreTable) -> float:
        if len(learned_from) <= 2 * 7:
            assert not learned_from[-1] & set(table[0].flatten().tolist())
            assert table[1].tolist() == [0, 0, 1, 1, 2, 2]
        return 1.0

    monkeypatch.setattr(consistency_choice, "train_consistency", train)
    monkeypatch.setattr(consistency_choice, "mean_recall", measure)
    scores = torch.rand(2, 6, 12, generator=torch.Generator().manual_seed(0))
    paper, more = consistency_choices()
    image_ids = torch.arange(6).repeat_interleave(2)
    choose_consistency([(scores, image_ids)], [*paper, *more])
    assert len(learned_from) == 2 * 7 + 2  # with the average, and the best, on all images
    assert learned_from[-1] == set(scores.flatten().tolist())
    with pytest.raises(PolyglanceError, match="of which there are 1: give 2 or more"):
        choose_consistency([(scores[:, :1, :2], image_ids[:2])], paper)


def test_scores_have_every_language() -> None:
    texts = toy_captions()
    table = texts.captions["test"]
    images = torch.eye(4)[:2]

    def encode(captions: CaptionTable) -> torch.Tensor:
        """Encode a caption as the id of its first word and its language."""
        first = captions.token_ids[captions.offsets[:-1]]
        return torch.tensor(
            np.stack([first, captions.language_ids, first * 0, first * 0], 1)
        ).float()

    def translate(source: str, target: str) -> np.ndarray:
        numbers = np.zeros(8, np.int64)
        numbers[[3, 2]] = [6, 5] if target == "de" else [3, 2]
        return numbers

    scores = scores_by_dictionary(table, "en", translate, encode, images)
    assert scores.shape == (2, 2, 3)
    assert scores[1, 0].tolist()[0] == 6  # red became rot
    assert scores[1, 1].tolist()[0] == 1  # with German as its language
    assert torch.isnan(scores[:, :, 1]).all()  # no dictionary has the cat
    assert scores[1, 0, 2] == 5  # of "dog cat" only the dog has a translation
    vectors = torch.arange(6).float()[:, None] * torch.ones(4)
    scores = scores_by_dataset(table, "en", vectors, images)
    assert scores[0, 0].tolist() == [0, 3, 4]
    assert scores[1, 0].tolist() == [1, 5, 5]  # the only German caption is repeated
