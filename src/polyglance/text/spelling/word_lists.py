"""Frequency lists of words that come with Polyglance, one small file a language.

A file is an xz stream of lines: a word in lower case, a tab, and its probability as half-bits
below 1 (``34`` is 2 to the power of -17). Words are in alphabetical order, which compresses best.
``frequent.xz`` has the most frequent words of all languages, to tell languages apart without
reading every list. ``known/*.bloom`` are words that are spelled right, and too rare to be counted
(`polyglance.text.spelling.known_words`).
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from functools import cache
from math import log2
from pathlib import Path

from polyglance.errors import DataError
from polyglance.text.spelling.known_words import KnownWords
from polyglance.utils.bounded import decompress_xz

FOLDER = Path(__file__).parent / "words"
"""The lists that come with Polyglance."""
NUM_FREQUENT = 1000
"""Words of each language in ``frequent.xz``."""
KNOWN = "known"
"""The folder of sets of rare words."""
_FREQUENT = "frequent.xz"
_STEPS = 2
"""Steps of a stored probability per bit."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]

Words = dict[str, float]
"""Words with the binary logarithm of their probability."""


class WordLists:
    """Words of many languages with their probabilities. Each list is read when first needed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._lists: dict[str, Words] = {}
        self._known: dict[str, KnownWords] = {}
        self._frequent: dict[str, dict[str, float]] | None = None

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that have a list."""
        names = (path.name.removesuffix(".xz") for path in self._folder.glob("*.xz"))
        return tuple(sorted(name for name in names if f"{name}.xz" != _FREQUENT))

    def words(self, language: str) -> Words:
        """Return the words of a language; empty for one without a list."""
        if language not in self._lists:
            path = self._folder / f"{language}.xz"
            self._lists[language] = dict(_parse(path)) if path.is_file() else {}
        return self._lists[language]

    def find(self, word: str, language: str) -> float | None:
        """Return a word's log probability in a language, None if its list lacks it.

        The list is not kept: for one word, all languages would take 60 MiB.
        """
        path = self._folder / f"{language}.xz"
        if language in self._lists or not path.is_file():
            return self.words(language).get(word)
        _, found, rest = f"\n{_read(path)}".partition(f"\n{word}\t")
        return -int(rest.partition("\n")[0]) / _STEPS if found else None

    def known(self, language: str) -> KnownWords:
        """Return words that a language's list lacks; empty for a language without such a set."""
        if language not in self._known:
            path = self._folder / KNOWN / f"{language}.bloom"
            content = path.read_bytes() if path.is_file() else None
            self._known[language] = (
                KnownWords() if content is None else KnownWords.from_bytes(content, str(path))
            )
        return self._known[language]

    @property
    def frequent(self) -> Mapping[str, Mapping[str, float]]:
        """The most frequent words, each with its log probability in the languages that use it."""
        if self._frequent is None:
            table: dict[str, dict[str, float]] = {}
            path = self._folder / _FREQUENT
            for line, probability in _parse(path) if path.is_file() else ():
                language, _, word = line.partition(" ")
                table.setdefault(word, {})[language] = probability
            self._frequent = table
        return self._frequent


def write_word_lists(
    counts: Mapping[str, Mapping[str, int]],
    folder: Path,
    *,
    max_words: int = 40_000,
    max_unseen: float = 0.075,
) -> None:
    """Write the lists of some languages.

    Args:
        counts: How often each word occurs, by language; words in lower case.
        folder: Where to write them.
        max_words: Keep only so many words of each language.
        max_unseen: A language where a new text has a larger share of words that the counts lack
            gets no list of its own: correct words would be taken for mistakes. The share is
            estimated as that of words that occur once (Good 1953).
    """
    folder.mkdir(parents=True, exist_ok=True)
    frequent = []
    for language, words in sorted(counts.items()):
        total = sum(words.values())
        ranked = sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))[:max_words]
        lines = [f"{word}\t{round(-_STEPS * log2(count / total))}" for word, count in ranked]
        if sum(count == 1 for count in words.values()) <= max_unseen * total:
            _write(folder / f"{language}.xz", lines)
        frequent += [f"{language} {line}" for line in lines[:NUM_FREQUENT]]
    _write(folder / _FREQUENT, frequent)


@cache
def shipped_word_lists() -> WordLists:
    """Return the lists that come with Polyglance."""
    return WordLists()


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes(lzma.compress("\n".join(sorted(lines)).encode(), filters=_FILTERS))


def _parse(path: Path) -> list[tuple[str, float]]:
    pairs = (line.rpartition("\t") for line in _read(path).split("\n"))
    try:
        return [(word, -int(steps) / _STEPS) for word, _, steps in pairs]
    except ValueError as error:
        raise _damaged(path, error) from error


def _read(path: Path) -> str:
    try:
        return decompress_xz(path.read_bytes()).decode()
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged ({error}): install Polyglance again")
