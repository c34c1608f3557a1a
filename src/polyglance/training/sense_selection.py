"""Select which of a dictionary's translations is meant, by a multilingual encoder.

Dictionaries list every sense a word ever had. An encoder whose words share one space tells
which translation is similar to the word; the dictionary's own order decides among equals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from polyglance.text.code_switching import is_translation
from polyglance.text.dictionaries import Dictionary
from polyglance.training.word_vectors import Vectors

MAX_CANDIDATES = 8
"""Maximum number of a word's translations that are compared."""
RANK_PENALTY = 0.03
"""Subtracted from the cosine for each rank further down in the dictionary."""
MIN_SIMILARITY = 0.15
"""Translations less similar are left out: another sense, or a wrong entry."""
MAX_GAP = 0.05
"""Translations are kept whose similarity is at most this far below the best."""


def select_senses(
    dictionaries: Mapping[str, Dictionary],
    words: Collection[str],
    encode: Callable[[Sequence[str]], Vectors],
) -> dict[str, Dictionary]:
    """Return the dictionaries restricted to these words and their most similar translations.

    Args:
        dictionaries: By language.
        words: Source words to keep.
        encode: Returns vectors ``(n, width)`` of words of any language. Their mean is
            subtracted, since single words mostly share that they are single words.
    """
    candidates = {
        language: {word: _candidates(dictionary, word) for word in dictionary if word in words}
        for language, dictionary in dictionaries.items()
    }
    spellings = sorted(
        {
            text
            for by_word in candidates.values()
            for word, translations in by_word.items()
            for text in (word, *translations)
        }
    )
    if not spellings:
        return {name: Dictionary((), source=d.source) for name, d in dictionaries.items()}
    vectors = encode(spellings)
    vectors = vectors - vectors.mean(0)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    row = {text: number for number, text in enumerate(spellings)}

    def select(word: str, translations: Sequence[str]) -> list[str]:
        similarity = vectors[[row[text] for text in translations]] @ vectors[row[word]]
        similarity = similarity - RANK_PENALTY * np.arange(len(translations))
        best = float(similarity.max())
        order = np.argsort(-similarity, kind="stable")
        return [
            translations[k]
            for k in order
            if best > MIN_SIMILARITY and similarity[k] > best - MAX_GAP
        ]

    return {
        language: Dictionary(
            (
                (word, text)
                for word, translations in by_word.items()
                if translations
                for text in select(word, translations)
            ),
            source=dictionaries[language].source,
        )
        for language, by_word in candidates.items()
    }


def _candidates(dictionary: Dictionary, word: str) -> list[str]:
    """Return translations that are words, not phrases that contain the word itself."""
    translations = filter(is_translation, dictionary.translations(word))
    words = [text for text in translations if text == word or word not in text.split()]
    return words[:MAX_CANDIDATES]
