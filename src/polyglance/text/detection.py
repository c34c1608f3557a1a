"""Which language a text is in, judged by the words of a lexicon and the letters in them.

Naive Bayes: a text is as likely in a language as its words are, one after
another. A word that the lexicon knows is as likely as it is common; one that it
does not know is spelled out letter by letter, each given the two before it. The
script needs no rule of its own: letters that a language never uses make a text
unlikely in it.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import log

from polyglance.errors import PolyglanceError
from polyglance.text.lexicon import Lexicon
from polyglance.text.segment import normalise_word, word_spans

_UNSEEN = 0.05
"""How likely a word of running text is one that the lexicon does not know."""

_SMOOTHING = 0.02
"""Added to the count of every letter in every place, for those that were never seen there."""


class LanguageDetector:
    """Tells the languages of a lexicon apart. Made once, it judges a sentence in well under
    a millisecond a language."""

    def __init__(self, lexicon: Lexicon) -> None:
        if not lexicon.languages:
            raise PolyglanceError("a lexicon without words knows no language")
        letters = {c for known in lexicon.counts.values() for word in known for c in word}
        self._languages = [
            _Language(code, lexicon.counts[code], len(letters) + 1) for code in lexicon.languages
        ]

    def __call__(self, text: str) -> str:
        """The likeliest language; the lexicon's first where a text has no letter to judge by."""
        scores = self.scores(text)
        return max(scores, key=scores.__getitem__)

    def scores(self, text: str) -> dict[str, float]:
        """The logarithm of how likely the text is in each language."""
        return {language.code: language.score(text) for language in self._languages}


def detect_language(text: str, lexicon: Lexicon) -> str:
    """The language of the lexicon that a text is most likely in."""
    return _detector(lexicon)(text)


@lru_cache(maxsize=4)
def _detector(lexicon: Lexicon) -> LanguageDetector:
    return LanguageDetector(lexicon)


class _Language:
    """How likely words, and letters after two others, are in one language."""

    def __init__(self, code: str, counts: dict[str, int], letters: int) -> None:
        self.code = code
        total = sum(counts.values())
        self._known = {
            word: log((1 - _UNSEEN) * count / total) for word, count in counts.items() if count
        }
        # Spelling is learned from all words alike: unknown words are rare words.
        seen: Counter[str] = Counter()
        before: Counter[str] = Counter()
        for word in counts:
            spelled = _spelled(word)
            seen.update(spelled[i - 2 : i + 1] for i in range(2, len(spelled)))
            before.update(spelled[i - 2 : i] for i in range(2, len(spelled)))
        self._seen, self._before, self._letters = seen, before, letters

    def score(self, text: str) -> float:
        total = 0.0
        for start, end in word_spans(text, self.code):
            word = normalise_word(text[start:end], self.code)
            total += self._known.get(word) or self._spelling(word)
        return total

    def _spelling(self, word: str) -> float:
        spelled, score = _spelled(word), log(_UNSEEN)
        for i in range(2, len(spelled)):
            seen = self._seen[spelled[i - 2 : i + 1]] + _SMOOTHING
            score += log(seen / (self._before[spelled[i - 2 : i]] + _SMOOTHING * self._letters))
        return score


def _spelled(word: str) -> str:
    """The letters of a word between the signs of its beginning and end."""
    return f"\x02\x02{word}\x03"
