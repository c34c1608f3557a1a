"""A sentence word by word in another language: what a dictionary can do for a translator."""

from __future__ import annotations

from polyglance.text.dictionaries import Dictionary
from polyglance.text.segment import UNSPACED, cut_words


def gloss(
    text: str,
    dictionary: Dictionary,
    language: str,
    *,
    target: str = "",
    longest: int = 1,
    keep_unknown: bool = True,
) -> str:
    """The text with each word as its first translation, in the order of the text.

    ``language`` is the text's, by whose rules it is cut; ``target`` that of the
    translations. With ``longest`` above one, phrases of so many words that the
    dictionary has come before single words. What lies between words stays; where
    nothing does (Chinese; l'eau), a space sets them apart, unless it is the target
    that has none. A capital stays where it begins the text, and so do words all in
    capitals. Unknown words stay as they are or, without ``keep_unknown``, are left
    out with what lies before them.
    """
    cuts = cut_words(text, language)
    pieces: list[str] = []
    done, at = 0, 0
    while at < len(cuts):
        found, taken = _longest_match(text, cuts[at : at + longest], dictionary)
        start, end = cuts[at][0], cuts[at + taken - 1][1]
        between = _between(text[done:start], target, is_first=not pieces)
        word = text[start:end]
        if found is not None:
            pieces += [between, cased(found, word, begins=at == 0)]
        elif keep_unknown:
            pieces += [between, word]
        done, at = end, at + taken
    return "".join([*pieces, text[done:]]).strip()


def _longest_match(
    text: str, cuts: list[tuple[int, int]], dictionary: Dictionary
) -> tuple[str | None, int]:
    """The first translation of the longest known phrase here, and how many words it takes."""
    for taken in range(len(cuts), 0, -1):
        found = dictionary.translations(text[cuts[0][0] : cuts[taken - 1][1]])
        if found:
            return found[0], taken
    return None, 1


def _between(gap: str, target: str, *, is_first: bool) -> str:
    """What separates two words in the target's way of writing."""
    if target in UNSPACED:
        return gap.strip()
    return gap or ("" if is_first else " ")


def cased(translation: str, word: str, *, begins: bool) -> str:
    """The translation with the capitals of the word it stands for, if it ``begins`` a sentence."""
    if len(word) > 1 and word.isupper():
        return translation.upper()
    if begins and word[:1].isupper():
        return translation[:1].upper() + translation[1:]
    return translation
