from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fasttext_files import fnv, parts
from polyglance.text.subwords import SubwordRule, subwords

WORDS = ["dog", "", "a", "žena", "المرأة", "狗", "grüßt", "𝒳y", "<s>", "l'"]


def test_the_hash_is_fnv_1a_where_bytes_are_ascii() -> None:
    """Published values of FNV-1a in 32 bits; beyond ASCII fastText's bytes are signed."""
    assert fnv("a") == 0xE40C292C
    assert fnv("foobar") == 0xBF9CF968
    found, _ = subwords(["a"], SubwordRule(1, 1, 2**31))
    assert found.tolist() == [0xE40C292C % 2**31]


def test_parts_by_eye() -> None:
    assert parts("dog", 3, 6) == ["<do", "<dog", "<dog>", "dog", "dog>", "og>"]
    found, counts = subwords(["dog", "a"], SubwordRule(3, 6, 1000))
    wanted = [fnv(part) % 1000 for part in ("<do", "<dog", "<dog>", "dog", "dog>", "og>", "<a>")]
    assert found.tolist() == wanted
    assert counts.tolist() == [6, 1]


@pytest.mark.parametrize(
    "rule", [SubwordRule(), SubwordRule(1, 3, 97), SubwordRule(2, 2, 5), SubwordRule(5, 7, 10**6)]
)
def test_all_words_at_once_are_as_one_by_one(rule: SubwordRule) -> None:
    found, counts = subwords(WORDS, rule)
    wanted = [[fnv(p) % rule.buckets for p in parts(w, rule.shortest, rule.longest)] for w in WORDS]
    assert counts.tolist() == [len(one) for one in wanted]
    assert found.tolist() == [number for one in wanted for number in one]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=5))
def test_any_words(words: list[str]) -> None:
    found, counts = subwords(words, SubwordRule(2, 4, 1009))
    wanted = [[fnv(part) % 1009 for part in parts(word, 2, 4)] for word in words]
    assert found.tolist() == [number for one in wanted for number in one]
    assert counts.tolist() == [len(one) for one in wanted]


@pytest.mark.parametrize("rule", [SubwordRule(3, 0), SubwordRule(0, 0), SubwordRule(3, 6, 0)])
def test_models_without_subwords(rule: SubwordRule) -> None:
    found, counts = subwords(["dog"], rule)
    assert (found.size, counts.tolist()) == (0, [0])
    assert np.issubdtype(found.dtype, np.integer)
