from __future__ import annotations

import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.text.bilingual_lexicon_induction import induce_dictionary
from polyglance.text.lexicon import Lexicon
from polyglance.text.vector_space import WordSpace


def space(english: np.ndarray, german: np.ndarray) -> WordSpace:  # type: ignore[type-arg]
    lexicon = Lexicon(
        {
            "en": {f"en{number}": 1 for number in range(len(english))},
            "de": {f"de{number}": 1 for number in range(len(german))},
        }
    )
    add_special_tokens = np.zeros((2, english.shape[1]))
    return WordSpace(
        lexicon, np.concatenate([add_special_tokens, english, german]).astype(np.float32)
    )


def test_mutual_best_matches_equal_a_loop_over_all_pairs() -> None:
    generator = np.random.default_rng(0)
    english = generator.normal(size=(30, 6))
    german = english[:20] + 0.7 * generator.normal(size=(20, 6))
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (english, german)]
    cosines = unit[0] @ unit[1].T
    csls = np.zeros((30, 20))
    for i in range(30):
        for j in range(20):
            near_i, near_j = sorted(cosines[i])[-4:], sorted(cosines[:, j])[-4:]
            csls[i, j] = 2 * cosines[i, j] - np.mean(near_i) - np.mean(near_j)
    wanted = {
        (f"en{i}", f"de{csls[i].argmax()}")
        for i in range(30)
        if csls[:, csls[i].argmax()].argmax() == i
    }
    found = set(induce_dictionary(space(english, german), "en", "de", num_neighbours=4).pairs())
    assert found == wanted
    assert sum(word[2:] == translation[2:] for word, translation in found) >= 10


def test_words_without_vectors_have_no_translation() -> None:
    english, german = np.eye(3), np.eye(3)
    english[1] = 0
    found = induce_dictionary(space(english, german), "en", "de")
    assert set(found.pairs()) == {("en0", "de0"), ("en2", "de2")}
    assert len(induce_dictionary(space(np.zeros((2, 3)), german), "en", "de")) == 0
    assert found.translations("EN2") == ("de2",)
    with pytest.raises(PolyglanceError, match="no words of 'fr'"):
        induce_dictionary(space(english, german), "en", "fr")
