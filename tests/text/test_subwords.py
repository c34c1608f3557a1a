from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fasttext import fnv, ngrams
from polyglance.text.subwords import SubwordConfig, subword_buckets

WORDS = ["dog", "", "a", "žena", "المرأة", "狗", "grüßt", "𝒳y", "<s>", "l'"]


def test_the_hash_is_fnv_1a_where_bytes_are_ascii() -> None:
    """Published values of FNV-1a in 32 bits; beyond ASCII fastText's bytes are signed."""
    assert fnv("a") == 0xE40C292C
    assert fnv("foobar") == 0xBF9CF968
    found, _ = subword_buckets(["a"], SubwordConfig(1, 1, 2**31))
    assert found.tolist() == [0xE40C292C % 2**31]


def test_ngrams_of_an_example() -> None:
    assert ngrams("dog", 3, 6) == ["<do", "<dog", "<dog>", "dog", "dog>", "og>"]
    found, counts = subword_buckets(["dog", "a"], SubwordConfig(3, 6, 1000))
    wanted = [fnv(part) % 1000 for part in ("<do", "<dog", "<dog>", "dog", "dog>", "og>", "<a>")]
    assert found.tolist() == wanted
    assert counts.tolist() == [6, 1]


@pytest.mark.parametrize(
    "config",
    [SubwordConfig(), SubwordConfig(1, 3, 97), SubwordConfig(2, 2, 5), SubwordConfig(5, 7, 10**6)],
)
def test_batch_equals_one_by_one(config: SubwordConfig) -> None:
    found, counts = subword_buckets(WORDS, config)
    wanted = [
        [fnv(p) % config.num_buckets for p in ngrams(w, config.min_n, config.max_n)] for w in WORDS
    ]
    assert counts.tolist() == [len(one) for one in wanted]
    assert found.tolist() == [number for one in wanted for number in one]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=5))
def test_any_words(words: list[str]) -> None:
    found, counts = subword_buckets(words, SubwordConfig(2, 4, 1009))
    wanted = [[fnv(part) % 1009 for part in ngrams(word, 2, 4)] for word in words]
    assert found.tolist() == [number for one in wanted for number in one]
    assert counts.tolist() == [len(one) for one in wanted]


@pytest.mark.parametrize(
    "config", [SubwordConfig(3, 0), SubwordConfig(0, 0), SubwordConfig(3, 6, 0)]
)
def test_models_without_subwords(config: SubwordConfig) -> None:
    found, counts = subword_buckets(["dog"], config)
    assert (found.size, counts.tolist()) == (0, [0])
    assert np.issubdtype(found.dtype, np.integer)
