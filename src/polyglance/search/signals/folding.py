"""Compare texts without case, accents and the shapes of digits, with places in the original."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    digit = unicodedata.digit(character, None)
    if digit is not None and character not in "²³¹":
        return str(digit)
    parts = unicodedata.normalize("NFKD", character)
    # Accents, Arabic vowel signs and the tatweel; "ı" is the i of Turkish.
    plain = "".join(part for part in parts if not unicodedata.combining(part) and part != "\u0640")
    return plain.casefold().replace("ı", "i").replace("’", "'")


def fold(text: str) -> str:
    """Return a text without case, accents and compatibility forms."""
    return "".join(map(_fold_character, text))


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text that knows where its characters come from."""

    original: str
    text: str
    places: tuple[int, ...]
    """For each character of ``text`` its place in ``original``, and one more for the end."""

    @classmethod
    def of(cls, original: str) -> Folded:
        """Fold a text."""
        parts = [_fold_character(character) for character in original]
        places = [place for place, part in enumerate(parts) for _ in part]
        return cls(original, "".join(parts), (*places, len(original)))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the start and end in the original of a part of the folded text."""
        return self.places[start], self.places[end - 1] + 1 if end > start else self.places[start]
