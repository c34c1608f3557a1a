"""Guess the language of a query from its script and its frequent words."""

from __future__ import annotations

import re
from functools import lru_cache

from polyglance.text.detection import LanguageDetector
from polyglance.text.lexicon import Lexicon
from polyglance.text.segment import normalise_word, word_spans
from polyglance.text.spelling.word_lists import WordLists

_SCRIPTS = (
    ("ja", re.compile(r"[\u3041-\u30ff\u31f0-\u31ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af\u1100-\u11ff]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
)
"""Scripts of one language each among those that people search in; kana before Han."""
_UNKNOWN_BITS = 17.0
"""The cost in bits of a word that is not frequent in a language."""
_NUM_SPELLINGS = 400
"""Words of each language from which its spelling is learned."""


def guess_language(text: str, lists: WordLists) -> str | None:
    """Return the most probable language of a query, or None for a text without words.

    Frequent words decide. A text without any is classified by its spelling
    (`LanguageDetector`).
    """
    return next(iter(rank_languages(text, lists)), None)


def rank_languages(text: str, lists: WordLists, count: int = 1) -> list[str]:
    """Return up to ``count`` languages of a query, the most probable first."""
    for language, pattern in _SCRIPTS:
        if pattern.search(text):
            return [language]
    words = [normalise_word(text[a:b], "") for a, b in word_spans(text, "")]
    # An apostrophe separates words in some languages and not in others.
    words = [part for word in words for part in (word, *word.split("'")[:-1]) if part]
    totals: dict[str, float] = {}
    for word in words:
        for language, bits in lists.frequent.get(word, {}).items():
            totals[language] = totals.get(language, 0.0) + bits + _UNKNOWN_BITS
    if words and not totals:
        totals = _detector(lists).scores(text)
    return sorted(totals, key=lambda code: (-totals[code], code != "en", code))[:count]


@lru_cache(maxsize=2)
def _detector(lists: WordLists) -> LanguageDetector:
    counts: dict[str, dict[str, int]] = {}
    for word, languages in lists.frequent.items():
        for language, bits in languages.items():
            counts.setdefault(language, {})[word] = max(1, round(2.0 ** (bits + 20)))
    shortened = {
        code: dict(sorted(words.items(), key=lambda pair: -pair[1])[:_NUM_SPELLINGS])
        for code, words in counts.items()
    }
    return LanguageDetector(Lexicon(shortened))
