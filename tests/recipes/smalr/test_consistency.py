"""Cross-lingual consistency: scores by language, and training on validation."""

from __future__ import annotations

import numpy as np
import torch

from helpers.toy_lexicon import toy_captions
from polyglance.data.captions import CaptionTable
from polyglance.recipes.smalr.consistency import (
    consistency_recalls,
    scores_by_dataset,
    scores_by_dictionary,
)


def test_consistency_is_trained_on_validation() -> None:
    """One language is right in validation alone, the other in test alone."""
    generator = torch.Generator().manual_seed(0)
    image_ids = np.arange(60)
    right = torch.eye(60) * 0.5

    def noise() -> torch.Tensor:
        return torch.rand(60, 60, generator=generator) - 0.5

    validation, test = torch.stack([right, noise()]), torch.stack([noise(), right])
    found = consistency_recalls(
        lambda _: validation,
        lambda _: test,
        {"en": (image_ids, image_ids), "de": (image_ids, image_ids)},
    )
    assert 40 < found["clc-a"]["en"] < 100
    for way in ("clc-c", "clc-c-paper"):
        assert found[way]["de"] < found["clc-a"]["de"] - 5
    same = consistency_recalls(lambda _: test, lambda _: test, {"en": (image_ids, image_ids)})
    assert same["clc-c"]["average"] > same["clc-a"]["average"] + 5


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
