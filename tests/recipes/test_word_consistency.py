"""Cross-lingual consistency: in which languages is asked, and what is learned from which split."""

from __future__ import annotations

import numpy as np
import torch

from polyglance.data.captions import CaptionTable
from polyglance.recipes.smalr.consistency import (
    asked_by_others,
    asked_word_by_word,
    consistency_figures,
)
from toy_word_texts import toy_texts


def test_consistency_learns_from_validation_what_holds_in_validation() -> None:
    """A language is right in validation and wrong in the test, the other the other way round."""
    generator = torch.Generator().manual_seed(0)
    owners = np.arange(60)
    right = torch.eye(60) * 0.5

    def noise() -> torch.Tensor:
        return torch.rand(60, 60, generator=generator) - 0.5

    validation, test = torch.stack([right, noise()]), torch.stack([noise(), right])
    found = consistency_figures(
        lambda _: validation, lambda _: test, {"en": (owners, owners), "de": (owners, owners)}
    )
    assert 40 < found["clc-a"]["en"] < 100
    for way in ("clc-c", "clc-c-paper"):
        assert found[way]["de"] < found["clc-a"]["de"] - 5
    same = consistency_figures(lambda _: test, lambda _: test, {"en": (owners, owners)})
    assert same["clc-c"]["average"] > same["clc-a"]["average"] + 5


def test_consistency_asks_in_every_language() -> None:
    texts = toy_texts()
    table = texts.captions["test"]
    pictures = torch.eye(4)[:2]

    def encode(captions: CaptionTable) -> torch.Tensor:
        """A caption is its first word's number and its language."""
        first = captions.ids[captions.offsets[:-1]]
        return torch.tensor(np.stack([first, captions.languages, first * 0, first * 0], 1)).float()

    def translate(source: str, target: str) -> np.ndarray:
        numbers = np.zeros(8, np.int64)
        numbers[[3, 2]] = [6, 5] if target == "de" else [3, 2]
        return numbers

    scores = asked_word_by_word(table, "en", translate, encode, pictures)
    assert scores.shape == (2, 2, 3)
    assert scores[1, 0].tolist()[0] == 6  # red became rot
    assert scores[1, 1].tolist()[0] == 1  # and is asked as German
    assert torch.isnan(scores[:, :, 1]).all()  # a cat is in no dictionary
    assert scores[1, 0, 2] == 5  # of "dog cat" the dog is left
    vectors = torch.arange(6).float()[:, None] * torch.ones(4)
    scores = asked_by_others(table, "en", vectors, pictures)
    assert scores[0, 0].tolist() == [0, 3, 4]
    assert scores[1, 0].tolist() == [1, 5, 5]  # the one German caption is said twice
