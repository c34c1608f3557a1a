"""Which translations are worth keeping: each check looks at pairs of texts and says which are.

Machine translations fail in a few ways that need no reader to be seen: they stay in
the source's language, stop early, ramble on, say a phrase over and over, or come in
another language than asked for. Whether the meaning is right is for a translation
back, or for an encoder that reads both languages.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from polyglance.errors import PolyglanceError
from polyglance.text.detection import LanguageDetector
from polyglance.text.lexicon import Lexicon
from polyglance.text.segment import normalise_word, word_spans

Pair: TypeAlias = tuple[str, str]
"""A text and its translation."""

_LEXICON = 20_000
"""Words of a language that are enough to tell it by."""
_PHRASE = 4
"""The most words in a phrase that is looked for over and over."""
_EVEN = 4
"""Letters that both texts are given before their lengths are compared: short ones vary."""
_FEW = 4
"""Of fewer words it says nothing how many of them are the text's."""
_CHRF_ORDER, _CHRF_BETA = 6, 2.0


class Check(Protocol):
    """Tells good translations from bad ones."""

    @property
    def name(self) -> str:
        """By which a report counts what it dropped."""

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """Whether each translation is good; all pairs are of the same two languages."""


def filter_pairs(
    pairs: Sequence[Pair], checks: Iterable[Check], source: str, target: str
) -> tuple[list[Pair], dict[str, list[Pair]]]:
    """Those that pass all checks, and the others by the name of the one they failed first."""
    left, failed = list(pairs), {}
    for check in checks:
        good = check(left, source, target)
        failed[check.name] = [pair for pair, passes in zip(left, good, strict=True) if not passes]
        left = [pair for pair, passes in zip(left, good, strict=True) if passes]
    return left, failed


@dataclass(frozen=True)
class EmptyCheck:
    """Drops translations without a letter, and of texts without one."""

    name: str = "empty"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        return [has_letters(here) and has_letters(there) for here, there in pairs]


@dataclass(frozen=True)
class CopyCheck:
    """Drops translations with the very words of the text, or with too many of them.

    One word may well be the same. Of four and more, at most the share ``most`` may stand
    in the text as well, as they do where a dictionary knew few of its words; names and
    numbers, which stay as they are in most languages, do not count.
    """

    max_overlap: float = 0.6
    name: str = "copied"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        # All words are cut and spelled as the source's, so that the same ones look the same.
        return [
            self._good(_cut(here, source), _cut(there, source), source) for here, there in pairs
        ]

    def _good(self, here: list[str], there: list[str], language: str) -> bool:
        known, said = _spelled(here, language), _spelled(there, language)
        if len(known) >= 2 and known == said:
            return False
        names = set(_spelled(_names(here), language))
        counted = [word for word in said if word not in names and not any(map(str.isdigit, word))]
        same = len([word for word in counted if word in known])
        return len(counted) < _FEW or same <= self.max_overlap * len(counted)


@dataclass(frozen=True)
class LengthCheck:
    """Drops translations much shorter or longer than their text, in `written_length`."""

    min_ratio: float = 0.4
    max_ratio: float = 2.5
    name: str = "length"

    def __post_init__(self) -> None:
        if not (self.min_ratio <= self.max_ratio and self.max_ratio > 0):  # NaN is refused as well
            raise PolyglanceError(
                f"no translation is at least {self.min_ratio:g} and at most {self.max_ratio:g} times as long"
                " as its text: give a --max-length-ratio above 0 and not below --min-length-ratio"
            )

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        return [self.min_ratio <= length_ratio(*pair) <= self.max_ratio for pair in pairs]


@dataclass(frozen=True)
class RepetitionCheck:
    """Drops translations that say a phrase more than ``most`` times in a row, unless the
    text does so as often."""

    max_repeats: int = 2
    name: str = "repetition"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        good = []
        for here, there in pairs:
            said = max_consecutive_repeats(there, target)
            good.append(said <= self.max_repeats or said <= max_consecutive_repeats(here, source))
        return good


@dataclass(frozen=True)
class LanguageCheck:
    """Drops translations that are likelier in another language, by `LanguageDetector`.

    Languages are learned from ``texts``; where those lack the two at hand, from what
    was translated and from the translations themselves, of which most are as they
    should be. Another language must be ``margin`` times likelier, as a logarithm.
    """

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    margin: float = 3.0
    name: str = "language"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        if not pairs:
            return []
        own = {source: [here for here, _ in pairs], target: [there for _, there in pairs]}
        lexicon = Lexicon.from_texts({**own, **self.texts}, max_words=_LEXICON)
        detector = LanguageDetector(lexicon)
        good = []
        for _, there in pairs:
            scores = detector.scores(there)
            ours = scores.pop(target)
            good.append(max(scores.values()) <= ours + self.margin)
        return good


@dataclass(frozen=True)
class EmbeddingCheck:
    """Drops translations that an encoder of both languages finds too unlike their text.

    ``likeness`` takes texts, their language, translations and theirs, and gives a
    number for each pair: the cosine of their vectors, say.
    """

    similarity: Callable[[list[str], str, list[str], str], Sequence[float]]
    min_similarity: float = 0.7
    name: str = "embedding"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        if not pairs:
            return []
        here, there = map(list, zip(*pairs, strict=True))
        return [
            bool(x >= self.min_similarity) for x in self.similarity(here, source, there, target)
        ]


@dataclass(frozen=True)
class RoundTripCheck:
    """Drops translations that, translated back, have too little in common with their text.

    ``back`` translates texts of the target language into the source's; what it cannot
    translate is None.
    """

    translate_back: Callable[[list[str], str, str], Sequence[str | None]]
    min_chrf: float = 0.4
    name: str = "round-trip"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        returned = self.translate_back([there for _, there in pairs], target, source)
        return [
            again is not None and chrf(again, here) >= self.min_chrf
            for (here, _), again in zip(pairs, returned, strict=True)
        ]


def has_letters(text: str) -> bool:
    """Whether there is a letter in a text, of any script."""
    return any(map(str.isalpha, text))


def written_length(text: str) -> int:
    """Letters and digits of a text; one of Chinese counts as three, of Japanese and Korean
    syllables as two, which makes captions of the same meaning about the same length."""
    return sum(_weight(character) for character in text)


def length_ratio(text: str, translation: str) -> float:
    """How many times as long the translation is; of short ones it is drawn towards 1."""
    return (written_length(translation) + _EVEN) / (written_length(text) + _EVEN)


def max_consecutive_repeats(text: str, language: str) -> int:
    """How often a phrase of up to four words is said at most, without a word in between."""
    words = _words(text, language)
    most = min(1, len(words))
    for length in range(1, _PHRASE + 1):
        same = 0  # words that are the same as the one so many words before
        for before, word in zip(words, words[length:], strict=False):
            same = same + 1 if word == before else 0
            most = max(most, same // length + 1)
    return most


def chrf(translation: str, reference: str) -> float:
    """chrF (Popović 2015): the F score of character n-grams up to six, recall counting double.

    Between 0 and 1, without regard to spaces and capitals; orders that the
    shorter of the texts is too short for do not count.
    """
    here, there = ("".join(text.lower().split()) for text in (translation, reference))
    precisions, recalls = [], []
    for order in range(1, min(_CHRF_ORDER, len(here), len(there)) + 1):
        mine, theirs = _grams(here, order), _grams(there, order)
        common = (mine & theirs).total()
        precisions.append(common / mine.total())
        recalls.append(common / theirs.total())
    if not precisions:
        return float(here == there)
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    weighted = _CHRF_BETA**2 * precision + recall
    return (1 + _CHRF_BETA**2) * precision * recall / weighted if weighted else 0.0


def _grams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))


def _words(text: str, language: str) -> list[str]:
    return _spelled(_cut(text, language), language)


def _cut(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text, language)]


def _spelled(words: Iterable[str], language: str) -> list[str]:
    return [normalise_word(word, language) for word in words]


def _names(words: Sequence[str]) -> list[str]:
    """Words with a capital that do not begin the text; none of a text in which all have one."""
    found = [word for word in words[1:] if word[0].isupper()]
    return found if len(found) < len(words) - 1 else []


def _weight(character: str) -> int:
    if character.isascii():
        return int(character.isalnum())
    if unicodedata.category(character)[0] not in "LN":
        return 0
    code = ord(character)
    if 0x3400 <= code <= 0x9FFF or 0x20000 <= code <= 0x3FFFF or 0xF900 <= code <= 0xFAFF:
        return 3
    return 2 if 0x3041 <= code <= 0x30FF or 0xAC00 <= code <= 0xD7A3 else 1
