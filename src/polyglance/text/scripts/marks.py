"""Words typed without their accents, on a keyboard that lacks them: kocka, Maedchen, σκυλος."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

_PLAIN = str.maketrans("đłøıæœ", "dloiao")
"""Letters that Unicode does not take apart."""
_SPELLED_OUT = {"de": (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")),
                "da": (("å", "aa"), ("æ", "ae"), ("ø", "oe")),
                "nb": (("å", "aa"), ("æ", "ae"), ("ø", "oe")),
                "sv": (("å", "aa"), ("ä", "ae"), ("ö", "oe"))}  # fmt: skip
"""Letters that are written as two where a keyboard lacks them."""


def strip_marks(word: str) -> str:
    """Return a word in lower case without accents, vowel signs and other marks."""
    parts = unicodedata.normalize("NFD", word.lower().translate(_PLAIN))
    return "".join(part for part in parts if not unicodedata.combining(part))


def marked_words(words: Mapping[str, float], language: str) -> dict[str, str]:
    """Return the most frequent word with marks for each spelling without.

    Args:
        words: A language's words with their frequency.
        language: The language.

    Returns:
        Words by how they are spelled without marks; words without any are left out.
    """
    found: dict[str, str] = {}
    pairs = _SPELLED_OUT.get(language, ())
    for word, bits in words.items():
        if word.isascii():
            continue
        spelled = word
        for letter, letters in pairs:
            spelled = spelled.replace(letter, letters)
        for plain in {strip_marks(word), spelled} - {word}:
            other = found.get(plain)
            if plain not in words and (other is None or bits > words[other]):
                found[plain] = word
    return found
