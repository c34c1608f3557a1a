"""Write queries in the script and spelling of their language that models know best."""

from __future__ import annotations

import re

from polyglance.text.scripts.cyrillic import cyrillic_letters, to_latin
from polyglance.text.scripts.han import to_simplified
from polyglance.text.scripts.kana import to_kanji
from polyglance.text.scripts.marks import marked_words, strip_marks

__all__ = ["marked_words", "strip_marks", "to_kanji", "to_latin", "to_simplified", "usual_script"]

_KANA = re.compile(r"[\u3041-\u30fa]")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_VOWEL_SIGNS = re.compile(r"[\u064b-\u0652\u0670\u0640]")
"""Arabic vowel signs, and the dash that stretches words."""
_SHORT_VOWELS = re.compile(r"[\u064c-\u0650\u0652]")
"""Signs that only vowelled text has; the others are common in any."""


def usual_script(text: str, language: str | None = None) -> str:
    """Return a query in the script of its language in which it is written most.

    Japanese in kana becomes kanji, traditional Chinese simplified, Serbian Latin, Uzbek (if that
    is given as the language) Cyrillic; vowelled Arabic loses its vowel signs.

    Args:
        text: A query.
        language: Its language, if it is known.

    Returns:
        The query; the same text if there is nothing to convert.
    """
    if language == "uz":
        return cyrillic_letters(text, "uz")
    if text.isascii():
        return text
    if language == "ja" or _KANA.search(text):
        return to_kanji(text)
    if language in (None, "zh", "yue", "wuu") and _HAN.search(text):
        return to_simplified(text)
    if _SHORT_VOWELS.search(text):
        text = _VOWEL_SIGNS.sub("", text)
    return to_latin(text, language)
