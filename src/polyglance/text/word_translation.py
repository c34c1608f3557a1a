"""Word-by-word translation of a sentence with a bilingual dictionary."""

from __future__ import annotations

from collections.abc import Sequence

from polyglance.text.dictionaries import Dictionary
from polyglance.text.english import lemmas
from polyglance.text.segment import UNSPACED, Span, word_spans


def translate_words(
    text: str,
    dictionary: Dictionary,
    language: str,
    *,
    target: str = "",
    max_phrase_words: int = 1,
    keep_unknown: bool = True,
) -> str:
    """Replace each word by its first translation, in the order of the text.

    Whatever lies between words stays; where nothing does (Chinese; l'eau), a space is
    inserted, unless the target is written without spaces. Capitals stay at the beginning
    of the text and in words all in capitals.

    Args:
        text: The sentence.
        dictionary: From ``language`` to ``target``. English words that it lacks are
            looked up in their base form.
        language: Language of the text, by whose rules it is split into words.
        target: Language of the translations.
        max_phrase_words: Prefer known phrases of up to so many words to single words.
        keep_unknown: Keep unknown words; otherwise they are dropped with the gap before them.

    Returns:
        The translated sentence.
    """
    spans = word_spans(text, language)
    pieces: list[str] = []
    done, at, after_known = 0, 0, True
    while at < len(spans):
        translation, length = _longest_match(
            text, spans[at : at + max_phrase_words], dictionary, language
        )
        start, end = spans[at][0], spans[at + length - 1][1]
        if translation is not None or keep_unknown:
            gap, word, is_known = text[done:start], text[start:end], translation is not None
            without_space = target in UNSPACED and is_known and after_known
            pieces.append(_separator(gap, target, is_first=not pieces, without_space=without_space))
            pieces.append(
                word
                if translation is None
                else match_case(translation, word, begins_sentence=at == 0)
            )
            after_known = is_known
        done, at = end, at + length
    return "".join([*pieces, text[done:]]).strip()


def _longest_match(
    text: str, spans: list[Span], dictionary: Dictionary, language: str
) -> tuple[str | None, int]:
    """Return the first translation of the longest known phrase here, and its number of words."""
    for length in range(len(spans), 0, -1):
        entries = look_up(text[spans[0][0] : spans[length - 1][1]], dictionary, language)
        if entries:
            return entries[0], length
    return None, 1


def look_up(word: str, dictionary: Dictionary, language: str) -> Sequence[str]:
    """Return a word's translations; of an English word those of its base form if need be."""
    entries = dictionary.translations(word)
    if not entries and language == "en":
        of_lemmas = (dictionary.translations(base) for base in lemmas(dictionary.normalise(word)))
        entries = next(filter(None, of_lemmas), ())
    return entries


def _separator(gap: str, target: str, *, is_first: bool, without_space: bool) -> str:
    """Return what separates two words in the target language.

    Translations into a language without spaces are joined; unknown words keep their gap.
    """
    if without_space:
        return gap.strip()
    return gap or ("" if is_first or target in UNSPACED else " ")


def match_case(translation: str, word: str, *, begins_sentence: bool) -> str:
    """Return the translation capitalised like the word that it replaces.

    An initial capital is copied only where the word begins a sentence.
    """
    if len(word) > 1 and word.isupper():
        return translation.upper()
    if begins_sentence and word[:1].isupper():
        return translation[:1].upper() + translation[1:]
    return translation
