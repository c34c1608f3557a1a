"""Read what a user typed: exclusions, weights, quotes and typing mistakes.

beach without people      exclusion in words (`polyglance.text.negation`)
beach -people -"red car"  explicit exclusion
beach^2 sunset            twice the weight for "beach"
"no parking"              taken literally: neither corrected nor an exclusion
ねこ                      searched for as 猫 (`polyglance.text.scripts`)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from polyglance.errors import PolyglanceError
from polyglance.text.negation import split_negation
from polyglance.text.scripts import strip_marks, usual_script
from polyglance.text.spelling import guess_language, shipped_speller, shipped_word_lists

T = TypeVar("T")
MAX_WEIGHT = 100.0
_MIN_STEM, _MAX_ENDING = 4, 2
"""Letters of a stem, and of an ending."""
_QUOTES = str.maketrans(dict.fromkeys("“”„«»", '"'))
_TERM = re.compile(
    r"""(?<!\S)(?P<minus>[-−](?=["\w]))?
        (?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"^]+))
        (?:\^(?P<weight>-?\d+(?:[.,]\d+)?))?(?=\s|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Weighted(Generic[T]):
    """A part of a query that counts more or less than others, whose weight is 1."""

    part: T
    weight: float

    def __post_init__(self) -> None:
        if not 0 < self.weight <= MAX_WEIGHT:
            raise PolyglanceError(
                f"a weight is above 0 and at most {MAX_WEIGHT:g}, not {self.weight:g}"
            )


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query taken apart."""

    wanted: tuple[Weighted[str], ...]
    excluded: tuple[str, ...] = ()
    language: str | None = None
    """As given, or as guessed."""
    searched_for: str | None = None
    """The corrected query, if it was corrected."""

    @property
    def text(self) -> str:
        """What is wanted, as one text."""
        return " ".join(one.part for one in self.wanted)


def parse_query(
    text: str,
    language: str | None = None,
    *,
    correct: bool = True,
    literal: bool = False,
    known: Callable[[Sequence[str]], Collection[str]] | None = None,
    surprisal: Callable[[str], float | None] | None = None,
) -> ParsedQuery:
    """Take a query apart.

    Args:
        text: What the user typed.
        language: Its language; by default it is guessed.
        correct: Correct words with typing mistakes, and write them in their usual script.
        literal: Take the text as it is: no exclusions, weights and corrections.
        known: Returns which words are spelled right though no list has them, such as names in a
            library.
        surprisal: Returns how improbable the spelling of a text is, in nats per byte. In a
            language without a dictionary, where many forms of words are unknown, a word is
            replaced only by one that is not spelled less probably and is no other form of it,
            or that has other accents alone.

    Returns:
        What is wanted and what is not. A query of nothing but spaces is wanted as it is.
    """
    if literal:
        code = language or guess_language(text, shipped_word_lists())
        return ParsedQuery((Weighted(text, 1.0),), (), code)
    typed_text, text = text, text.translate(_QUOTES)
    if correct and '"' not in text:
        text, language = _convert_script(text, language, known)
    weighted, excluded, rest = _split_terms(text)
    plain = " ".join(part for part, quoted in rest if not quoted)
    words = " ".join([plain, *(one.part for one in weighted)])
    speller = shipped_speller()
    if correct:
        correction = speller.correct(plain or words, language)
        code = correction.language
        changes = dict(correction.changes)
        for typed in known(list(changes)) if known is not None and changes else ():
            changes.pop(typed, None)
        if not speller.knows_rare_words(code):
            changes = {
                typed: fixed
                for typed, fixed in changes.items()
                if strip_marks(typed) == strip_marks(fixed)
                or (
                    not _same_stem(typed, fixed)
                    and (surprisal is None or _nats(fixed, surprisal) <= _nats(typed, surprisal))
                )
            }
    else:
        code, changes = language or guess_language(words, shipped_word_lists()), {}
    wanted = list[str]()
    for part, quoted in rest:
        if quoted:
            wanted.append(part)
            continue
        negated = split_negation(_replace_words(part, changes), code)
        wanted += [negated.wanted] if negated.wanted else []
        excluded += negated.excluded
    joined = " ".join(wanted).strip()
    parts = [Weighted(joined, 1.0)] if joined else []
    parts += [Weighted(_replace_words(one.part, changes), one.weight) for one in weighted]
    if not parts and not excluded:
        parts = [Weighted(text, 1.0)]
    corrected = _replace_words(text, changes)
    searched_for = None if corrected == typed_text.translate(_QUOTES) else corrected
    return ParsedQuery(tuple(parts), tuple(excluded), code, searched_for)


def parse_weight(text: str) -> tuple[str, float]:
    """Split ``name^2`` into a name and its weight; without one it is 1."""
    match = re.fullmatch(r"(.+)\^(\d+(?:\.\d+)?)", text, re.DOTALL)
    return (match[1], Weighted(match[1], float(match[2])).weight) if match else (text, 1.0)


def _split_terms(text: str) -> tuple[list[Weighted[str]], list[str], list[tuple[str, bool]]]:
    """Return weighted terms, excluded ones, and the rest: texts, and whether they were quoted."""
    weighted, excluded, rest, at = list[Weighted[str]](), list[str](), list[tuple[str, bool]](), 0
    for match in _TERM.finditer(text):
        term = (match["quoted"] if match["plain"] is None else match["plain"]).strip()
        weight = float((match["weight"] or "1").replace(",", "."))
        if not term or not (match["minus"] or match["weight"] or match["quoted"] is not None):
            continue
        rest.append((text[at : match.start()].strip(), False))
        at = match.end()
        if match["minus"] or weight < 0:
            excluded.append(term)
        elif match["weight"]:
            weighted.append(Weighted(term, weight))
        else:
            rest.append((term, True))
    rest.append((text[at:].strip(), False))
    return weighted, excluded, [one for one in rest if one[0]]


def _convert_script(
    text: str, language: str | None, known: Callable[[Sequence[str]], Collection[str]] | None
) -> tuple[str, str | None]:
    """Return a query in the usual script of its language, and the language if it was converted.

    A query that has words of the library's names stays as it is.
    """
    if text.isascii() and language is None:
        return text, language
    code = language or guess_language(text, shipped_word_lists())
    converted = usual_script(text, code)
    if converted == text or (known is not None and known(text.split())):
        return text, language
    return converted, code


def _same_stem(typed: str, fixed: str) -> bool:
    """Return whether words differ at their ends alone, as the cases of one word do."""
    pairs = zip(typed.casefold(), fixed.casefold(), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return shared >= _MIN_STEM and shared >= max(len(typed), len(fixed)) - _MAX_ENDING


def _nats(word: str, surprisal: Callable[[str], float | None]) -> float:
    """Return how improbable a word's spelling is; infinity if that is unknown."""
    per_byte = surprisal(word)
    return math.inf if per_byte is None else per_byte * (len(word.encode()) + 1)


def _replace_words(text: str, changes: dict[str, str]) -> str:
    for typed, fixed in changes.items():
        parts = re.split(rf"(?<!\w){re.escape(typed)}(?!\w)", text)
        text = fixed.join(parts)
    return text
