from __future__ import annotations

import pytest

from polyglance.text.english import lemmas, strip_possessive


@pytest.mark.parametrize(
    ("word", "base"),
    [
        ("dogs", "dog"), ("buses", "bus"), ("benches", "bench"), ("dishes", "dish"),
        ("cities", "city"), ("movies", "movie"), ("knives", "knife"), ("leaves", "leaf"),
        ("gloves", "glove"), ("horses", "horse"), ("potatoes", "potato"), ("shoes", "shoe"),
        ("women", "woman"), ("firemen", "fireman"), ("children", "child"), ("feet", "foot"),
        ("running", "run"), ("sitting", "sit"), ("riding", "ride"), ("playing", "play"),
        ("lying", "lie"), ("rolling", "roll"), ("waiting", "wait"), ("dancing", "dance"),
        ("jumped", "jump"), ("smiled", "smile"), ("carried", "carry"), ("stopped", "stop"),
        ("dressed", "dress"), ("stood", "stand"), ("is", "be"), ("an", "a"),
        ("tallest", "tall"), ("biggest", "big"), ("happiest", "happy"), ("largest", "large"),
    ],
)  # fmt: skip
def test_base_forms(word: str, base: str) -> None:
    assert base in list(lemmas(word))


@pytest.mark.parametrize("word", ["bus", "grass", "this", "sing", "red", "player", "gas", "", "s"])
def test_words_without_other_base_form(word: str) -> None:
    assert list(lemmas(word)) == []


def test_strip_possessive() -> None:
    assert strip_possessive("dog's") == "dog"
    assert strip_possessive("Man’s") == "Man"
    assert strip_possessive("it's") == "it's"
    assert strip_possessive("There’s") == "There’s"
    assert strip_possessive("dogs") == "dogs"
