"""Language identification from the words of a lexicon and their spelling.

Naive Bayes over words: a word of the lexicon has its relative frequency, any other a
probability by a character trigram model. Scripts need no rule of their own: characters
that a language never uses make a text improbable in it.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import log

from polyglance.errors import PolyglanceError
from polyglance.text.lexicon import Lexicon
from polyglance.text.segment import normalise_word, word_spans

_UNKNOWN_PROBABILITY = 0.05
"""Probability that a word of running text is not in the lexicon."""

_SMOOTHING = 0.02
"""Added to every trigram count."""


class LanguageDetector:
    """Identifies the languages of a lexicon, in well under a millisecond per language."""

    def __init__(self, lexicon: Lexicon) -> None:
        if not lexicon.languages:
            raise PolyglanceError(
                "language detection needs a lexicon with words: this one is empty"
            )
        characters = {c for words in lexicon.counts.values() for word in words for c in word}
        self._languages = [
            _LanguageModel(code, lexicon.counts[code], len(characters) + 1)
            for code in lexicon.languages
        ]

    def __call__(self, text: str) -> str:
        """Return the most probable language; the lexicon's first for a text without words."""
        scores = self.scores(text)
        return max(scores, key=scores.__getitem__)

    def scores(self, text: str) -> dict[str, float]:
        """Return the log probability of the text in each language."""
        return {language.code: language.score(text) for language in self._languages}


def detect_language(text: str, lexicon: Lexicon) -> str:
    """Return the most probable of the lexicon's languages for a text."""
    return _detector(lexicon)(text)


@lru_cache(maxsize=4)
def _detector(lexicon: Lexicon) -> LanguageDetector:
    return LanguageDetector(lexicon)


class _LanguageModel:
    """Word and character trigram probabilities of one language."""

    def __init__(self, code: str, counts: dict[str, int], num_characters: int) -> None:
        self.code = code
        total = sum(counts.values())
        self._log_probability = {
            word: log((1 - _UNKNOWN_PROBABILITY) * count / total)
            for word, count in counts.items()
            if count
        }
        # Every word counts once here: unknown words are rare words.
        trigrams: Counter[str] = Counter()
        bigrams: Counter[str] = Counter()
        for word in counts:
            padded = _with_boundaries(word)
            trigrams.update(padded[i - 2 : i + 1] for i in range(2, len(padded)))
            bigrams.update(padded[i - 2 : i] for i in range(2, len(padded)))
        self._trigrams, self._bigrams, self._num_characters = trigrams, bigrams, num_characters

    def score(self, text: str) -> float:
        total = 0.0
        for start, end in word_spans(text, self.code):
            word = normalise_word(text[start:end], self.code)
            total += self._log_probability.get(word) or self._spelling_score(word)
        return total

    def _spelling_score(self, word: str) -> float:
        padded, score = _with_boundaries(word), log(_UNKNOWN_PROBABILITY)
        for i in range(2, len(padded)):
            count = self._trigrams[padded[i - 2 : i + 1]] + _SMOOTHING
            score += log(
                count / (self._bigrams[padded[i - 2 : i]] + _SMOOTHING * self._num_characters)
            )
        return score


def _with_boundaries(word: str) -> str:
    """Return the word between boundary characters."""
    return f"\x02\x02{word}\x03"
