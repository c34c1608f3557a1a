from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.recipes.uc2.label_tokens import LabelTokens

NAMES = {"en": ["ab", "c", "dde"], "de": ["x", "yz", "w"]}


class Letters:
    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        assert not add_special_tokens
        return [[ord(letter) - 97 for letter in text if letter != " "] for text in texts]


def test_a_sub_word_of_the_right_name_is_drawn_evenly() -> None:
    words = LabelTokens(NAMES, Letters())
    generator = np.random.default_rng(0)
    numbers = words.language_ids(["de", "en"])
    assert numbers.tolist() == [1, 0]
    for language, spoken in enumerate(("en", "de")):
        for label, name in enumerate(NAMES[spoken]):
            drawn = words.draw(np.full(3000, language), np.full(3000, label), generator)
            found, counts = np.unique(drawn, return_counts=True)
            assert {chr(97 + letter) for letter in found} == set(name)
            for letter, count in zip(found, counts, strict=True):
                share = name.count(chr(97 + letter)) / len(name)
                assert count / 3000 == pytest.approx(share, abs=0.05)


def test_a_label_s_vector_is_the_mean_of_its_sub_words() -> None:
    table = torch.nn.Parameter(torch.randn(26, 4))
    found = LabelTokens(NAMES, Letters()).vectors(table, "de")
    expected = torch.stack(
        [torch.stack([table[ord(letter) - 97] for letter in name]).mean(0) for name in NAMES["de"]]
    )
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad


def test_names_that_are_missing_are_said() -> None:
    with pytest.raises(PolyglanceError, match="2 names of labels in fr, and 3 in en"):
        LabelTokens({**NAMES, "fr": ["a", "b"]}, Letters())
    with pytest.raises(PolyglanceError, match="label 1 has no name in fr"):
        LabelTokens({**NAMES, "fr": ["a", " ", "b"]}, Letters())
    with pytest.raises(PolyglanceError, match="labels have no names in cs"):
        LabelTokens(NAMES, Letters()).language_ids(["en", "cs"])
