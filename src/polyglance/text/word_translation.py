"""A sentence word by word in another language: what a dictionary can do for a translator."""

from __future__ import annotations

from collections.abc import Sequence

from polyglance.text.dictionaries import Dictionary
from polyglance.text.english import lemmas
from polyglance.text.segment import UNSPACED, word_spans


def translate_words(
    text: str,
    dictionary: Dictionary,
    language: str,
    *,
    target: str = "",
    max_phrase_words: int = 1,
    keep_unknown: bool = True,
) -> str:
    """The text with each word as its first translation, in the order of the text.

    ``language`` is the text's, by whose rules it is cut; ``target`` that of the
    translations. With ``longest`` above one, phrases of so many words that the
    dictionary has come before single words; English words may be known by their base
    form. What lies between words stays; where nothing does (Chinese; l'eau), a space
    sets them apart. In a target without spaces, translations touch. A capital stays
    where it begins the text, and so do words all in capitals. Unknown words stay as
    they are or, without ``keep_unknown``, are left out with what lies before them.
    """
    cuts = word_spans(text, language)
    pieces: list[str] = []
    done, at, after_known = 0, 0, True
    while at < len(cuts):
        found, taken = _longest_match(text, cuts[at : at + max_phrase_words], dictionary, language)
        start, end = cuts[at][0], cuts[at + taken - 1][1]
        if found is not None or keep_unknown:
            gap, word, known = text[done:start], text[start:end], found is not None
            touching = target in UNSPACED and known and after_known
            pieces.append(_between(gap, target, is_first=not pieces, touching=touching))
            pieces.append(word if found is None else match_case(found, word, begins=at == 0))
            after_known = known
        done, at = end, at + taken
    return "".join([*pieces, text[done:]]).strip()


def _longest_match(
    text: str, cuts: list[tuple[int, int]], dictionary: Dictionary, language: str
) -> tuple[str | None, int]:
    """The first translation of the longest known phrase here, and how many words it takes."""
    for taken in range(len(cuts), 0, -1):
        found = look_up(text[cuts[0][0] : cuts[taken - 1][1]], dictionary, language)
        if found:
            return found[0], taken
    return None, 1


def look_up(word: str, dictionary: Dictionary, language: str) -> Sequence[str]:
    """What a dictionary has of a word, of an English one by its base form if need be."""
    found = dictionary.translations(word)
    if not found and language == "en":
        bases = (dictionary.translations(base) for base in lemmas(dictionary.normalise(word)))
        found = next(filter(None, bases), ())
    return found


def _between(gap: str, target: str, *, is_first: bool, touching: bool) -> str:
    """What separates two words in the target's way of writing.

    Words of a script without spaces touch; one that stayed as it was is still set apart.
    """
    if touching:
        return gap.strip()
    return gap or ("" if is_first or target in UNSPACED else " ")


def match_case(translation: str, word: str, *, begins: bool) -> str:
    """The translation with the capitals of the word it stands for, if it ``begins`` a sentence."""
    if len(word) > 1 and word.isupper():
        return translation.upper()
    if begins and word[:1].isupper():
        return translation[:1].upper() + translation[1:]
    return translation
