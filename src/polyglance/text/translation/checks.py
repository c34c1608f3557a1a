"""Quality checks that filter machine translations.

The simple checks find common failures: output that is copied from the source, stops
early, is far too long, repeats a phrase, or is in the wrong language. Whether the meaning
is right is checked by a translation back, or by a multilingual encoder.
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

_MAX_WORDS = 20_000
"""Vocabulary size per language for language detection."""
_MAX_PHRASE_WORDS = 4
"""Longest repeated phrase that is looked for, in words."""
_SMOOTHING = 4
"""Added to both lengths before they are compared, since those of short texts vary."""
_MIN_WORDS = 4
"""Fewest words for which the share of copied words is meaningful."""
_CHRF_ORDER, _CHRF_BETA = 6, 2.0


class Check(Protocol):
    """Tells good translations from bad ones."""

    @property
    def name(self) -> str:
        """The check's name in reports."""

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """Return whether each translation is good; all pairs are of the same two languages."""


def filter_pairs(
    pairs: Sequence[Pair], checks: Iterable[Check], source: str, target: str
) -> tuple[list[Pair], dict[str, list[Pair]]]:
    """Return the pairs that pass all checks, and the others by the first check they failed."""
    left, failed = list(pairs), {}
    for check in checks:
        good = check(left, source, target)
        failed[check.name] = [pair for pair, passes in zip(left, good, strict=True) if not passes]
        left = [pair for pair, passes in zip(left, good, strict=True) if passes]
    return left, failed


@dataclass(frozen=True)
class EmptyCheck:
    """Drops pairs in which the text or the translation has no letter."""

    name: str = "empty"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        return [has_letters(text) and has_letters(translation) for text, translation in pairs]


@dataclass(frozen=True)
class CopyCheck:
    """Drops translations that copy the text, or too many of its words.

    Of four or more words, at most the share ``max_overlap`` may be in the text as well;
    a dictionary that has few of the words leaves more. Names and numbers, which most
    languages keep, do not count. A single word may be the same.
    """

    max_overlap: float = 0.6
    name: str = "copied"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        # Both sides are split by the source's rules, so that copied words compare equal.
        return [
            self._is_good(_split(text, source), _split(translation, source), source)
            for text, translation in pairs
        ]

    def _is_good(self, text: list[str], translation: list[str], language: str) -> bool:
        source_words = _normalised(text, language)
        target_words = _normalised(translation, language)
        if len(source_words) >= 2 and source_words == target_words:
            return False
        names = set(_normalised(_names(text), language))
        counted = [
            word for word in target_words if word not in names and not any(map(str.isdigit, word))
        ]
        copied = len([word for word in counted if word in source_words])
        return len(counted) < _MIN_WORDS or copied <= self.max_overlap * len(counted)


@dataclass(frozen=True)
class LengthCheck:
    """Drops translations much shorter or longer than their text, by `written_length`."""

    min_ratio: float = 0.4
    max_ratio: float = 2.5
    name: str = "length"

    def __post_init__(self) -> None:
        if not (self.min_ratio <= self.max_ratio and self.max_ratio > 0):  # NaN is refused as well
            raise PolyglanceError(
                f"no length ratio is at least {self.min_ratio:g} and at most {self.max_ratio:g}:"
                " give a --max-length-ratio above 0 and not below --min-length-ratio"
            )

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        return [self.min_ratio <= length_ratio(*pair) <= self.max_ratio for pair in pairs]


@dataclass(frozen=True)
class RepetitionCheck:
    """Drops translations that repeat a phrase more than ``max_repeats`` times in a row, unless
    the text does so as often."""

    max_repeats: int = 2
    name: str = "repetition"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        good = []
        for text, translation in pairs:
            repeats = max_consecutive_repeats(translation, target)
            good.append(
                repeats <= self.max_repeats or repeats <= max_consecutive_repeats(text, source)
            )
        return good


@dataclass(frozen=True)
class LanguageCheck:
    """Drops translations that are more probable in another language, by `LanguageDetector`.

    The detector is trained on ``texts`` by language; the source and target, if ``texts``
    lacks them, on the pairs themselves, most of which are right. A translation is
    dropped if another language's log probability is higher by more than ``margin``.
    """

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    margin: float = 3.0
    name: str = "language"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        if not pairs:
            return []
        own = {source: [text for text, _ in pairs], target: [text for _, text in pairs]}
        lexicon = Lexicon.from_texts({**own, **self.texts}, max_words=_MAX_WORDS)
        detector = LanguageDetector(lexicon)
        good = []
        for _, translation in pairs:
            scores = detector.scores(translation)
            expected = scores.pop(target)
            good.append(max(scores.values()) <= expected + self.margin)
        return good


@dataclass(frozen=True)
class EmbeddingCheck:
    """Drops translations whose embedding is too dissimilar to their text's.

    ``similarity`` takes texts, their language, translations and their language, and
    returns a number for each pair, such as the cosine of their vectors.
    """

    similarity: Callable[[list[str], str, list[str], str], Sequence[float]]
    min_similarity: float = 0.7
    name: str = "embedding"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        if not pairs:
            return []
        texts, translations = map(list, zip(*pairs, strict=True))
        scores = self.similarity(texts, source, translations, target)
        return [bool(score >= self.min_similarity) for score in scores]


@dataclass(frozen=True)
class RoundTripCheck:
    """Drops translations whose translation back has a low chrF with their text.

    ``translate_back`` takes texts, their language and the source language, and returns
    their translations, None where it failed.
    """

    translate_back: Callable[[list[str], str, str], Sequence[str | None]]
    min_chrf: float = 0.4
    name: str = "round-trip"

    def __call__(self, pairs: Sequence[Pair], source: str, target: str) -> list[bool]:
        """See `Check`."""
        round_trips = self.translate_back([text for _, text in pairs], target, source)
        return [
            round_trip is not None and chrf(round_trip, text) >= self.min_chrf
            for (text, _), round_trip in zip(pairs, round_trips, strict=True)
        ]


def has_letters(text: str) -> bool:
    """Return whether a text has a letter of any script."""
    return any(map(str.isalpha, text))


def written_length(text: str) -> int:
    """Count letters and digits: Chinese characters as three, kana and Korean syllables as two.

    Captions of the same meaning then have about the same length in all languages.
    """
    return sum(_weight(character) for character in text)


def length_ratio(text: str, translation: str) -> float:
    """Return the translation's length relative to the text's, smoothed towards 1."""
    return (written_length(translation) + _SMOOTHING) / (written_length(text) + _SMOOTHING)


def max_consecutive_repeats(text: str, language: str) -> int:
    """Return how often a phrase of up to four words is repeated in a row, at most."""
    words = _words(text, language)
    repeats = min(1, len(words))
    for length in range(1, _MAX_PHRASE_WORDS + 1):
        same = 0  # consecutive words equal to the one `length` words before
        for before, word in zip(words, words[length:], strict=False):
            same = same + 1 if word == before else 0
            repeats = max(repeats, same // length + 1)
    return repeats


def chrf(translation: str, reference: str) -> float:
    """Return chrF (Popović 2015): F2 of character n-grams up to 6, between 0 and 1.

    Ignores spaces and case; n-gram orders longer than the shorter text do not count.
    """
    hypothesis, target = ("".join(text.lower().split()) for text in (translation, reference))
    precisions, recalls = [], []
    for order in range(1, min(_CHRF_ORDER, len(hypothesis), len(target)) + 1):
        ours, theirs = _ngrams(hypothesis, order), _ngrams(target, order)
        common = (ours & theirs).total()
        precisions.append(common / ours.total())
        recalls.append(common / theirs.total())
    if not precisions:
        return float(hypothesis == target)
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    weighted = _CHRF_BETA**2 * precision + recall
    return (1 + _CHRF_BETA**2) * precision * recall / weighted if weighted else 0.0


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))


def _words(text: str, language: str) -> list[str]:
    return _normalised(_split(text, language), language)


def _split(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text, language)]


def _normalised(words: Iterable[str], language: str) -> list[str]:
    return [normalise_word(word, language) for word in words]


def _names(words: Sequence[str]) -> list[str]:
    """Return capitalised words after the first; none where all words are capitalised."""
    names = [word for word in words[1:] if word[0].isupper()]
    return names if len(names) < len(words) - 1 else []


def _weight(character: str) -> int:
    if character.isascii():
        return int(character.isalnum())
    if unicodedata.category(character)[0] not in "LN":
        return 0
    code = ord(character)
    if 0x3400 <= code <= 0x9FFF or 0x20000 <= code <= 0x3FFFF or 0xF900 <= code <= 0xFAFF:
        return 3
    return 2 if 0x3041 <= code <= 0x30FF or 0xAC00 <= code <= 0xD7A3 else 1
