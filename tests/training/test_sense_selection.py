"""Translations are chosen by likeness, with a dictionary's order in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyglance.text.dictionaries import Dictionary
from polyglance.training.sense_selection import select_senses
from polyglance.training.word_vectors import Vectors

# Places on a circle: what lies at nearly the same angle means the same.
_ANGLES = {
    "dog": 0.0, "Klammer": 2.0, "Hund": 0.1, "Köter": 0.12, "chien": 0.05,
    "water": 3.0, "Wasser": 3.1, "odd": 4.5, "komisch": 1.5,
}  # fmt: skip


def encode(words: Sequence[str]) -> Vectors:
    angles = np.array([_ANGLES[word] for word in words])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_most_similar_sense_comes_first_and_others_are_dropped() -> None:
    german = Dictionary(
        [
            ("dog", "Klammer"), ("dog", "Hund"), ("dog", "Köter"), ("dog", "the dog of the house"),
            ("water", "Wasser"), ("water", "under water"), ("odd", "komisch"), ("cat", "Katze"),
        ],
        source="en",
    )  # fmt: skip
    french = Dictionary([("dog", "chien")], source="en")
    chosen = select_senses({"de": german, "fr": french}, {"dog", "water", "odd"}, encode)
    assert chosen["de"].translations("dog") == ("Hund", "Köter")
    assert chosen["de"].translations("Water") == ("Wasser",)
    assert "odd" not in chosen["de"]  # what it lists is nothing like it
    assert "cat" not in chosen["de"]  # nobody asked
    assert list(chosen["fr"].pairs()) == [("dog", "chien")]


def test_dictionary_order_breaks_ties() -> None:
    words = {"dog": 0.0, "zuerst": 0.3, "danach": 0.28, "fern": 2.6, "ferner": 3.6}

    def circle(texts: Sequence[str]) -> Vectors:
        angles = np.array([words[text] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    known = Dictionary([("dog", t) for t in ("zuerst", "danach", "fern", "ferner")], source="en")
    chosen = select_senses({"de": known}, {"dog"}, circle)
    assert chosen["de"].translations("dog") == ("zuerst", "danach")


def test_words_without_translations_give_empty_dictionaries() -> None:
    chosen = select_senses({"de": Dictionary([("dog", "Hund")], source="en")}, {"cat"}, encode)
    assert len(chosen["de"]) == 0
    assert chosen["de"].source == "en"
