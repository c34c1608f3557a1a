"""Which of a dictionary's translations is meant: the one that a multilingual encoder finds alike.

Dictionaries list every sense a word ever had. An encoder whose words share one
space tells which translation lies near the word; a dictionary's own order decides
among those that lie as near.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from polyglance.text.code_switching import is_translation
from polyglance.text.dictionaries import Dictionary
from polyglance.training.word_vectors import Vectors

CANDIDATES = 8
"""So many of a word's translations are looked at."""
LATER = 0.03
"""What each place further down in the dictionary costs, as a cosine."""
ALIKE = 0.15
"""Translations less like their word than this are left out: another sense, or a wrong entry."""
NEAR = 0.05
"""Others are kept that are hardly less alike than the best."""


def by_likeness(
    dictionaries: Mapping[str, Dictionary],
    words: Collection[str],
    encode: Callable[[Sequence[str]], Vectors],
) -> dict[str, Dictionary]:
    """The dictionaries with these words alone, and of their translations the most alike.

    ``encode`` gives vectors to words of any language; the mean of all is taken off,
    since words standing alone mostly say that they stand alone.
    """
    wanted = {
        language: {word: _candidates(dictionary, word) for word in dictionary if word in words}
        for language, dictionary in dictionaries.items()
    }
    spellings = sorted(
        {
            text
            for known in wanted.values()
            for word, found in known.items()
            for text in (word, *found)
        }
    )
    if not spellings:
        return {name: Dictionary((), source=d.source) for name, d in dictionaries.items()}
    vectors = encode(spellings)
    vectors = vectors - vectors.mean(0)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    row = {text: number for number, text in enumerate(spellings)}

    def chosen(word: str, found: Sequence[str]) -> list[str]:
        alike = vectors[[row[text] for text in found]] @ vectors[row[word]]
        alike = alike - LATER * np.arange(len(found))
        best = float(alike.max())
        order = np.argsort(-alike, kind="stable")
        return [found[k] for k in order if best > ALIKE and alike[k] > best - NEAR]

    return {
        language: Dictionary(
            (
                (word, text)
                for word, found in known.items()
                if found
                for text in chosen(word, found)
            ),
            source=dictionaries[language].source,
        )
        for language, known in wanted.items()
    }


def _candidates(dictionary: Dictionary, word: str) -> list[str]:
    """Translations that are words, not phrases around the word itself."""
    found = filter(is_translation, dictionary.translations(word))
    return [text for text in found if text == word or word not in text.split()][:CANDIDATES]
