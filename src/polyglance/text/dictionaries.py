"""Bilingual dictionaries: words of one language and their translations into another.

Formats: one word pair per line, as MUSE (Conneau et al. 2018) publishes them;
tab-separated tables, as exported from PanLex; dictd's files, as FreeDict's are installed
(`polyglance.text.dictd`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from polyglance.errors import DataError, Problems
from polyglance.records import atomic_write, read_lines
from polyglance.text.segment import normalise_word

_DICTD = (".index", ".dict", ".dict.dz")


class Dictionary:
    """Words and phrases with their translations, best first where that is known.

    Look-up ignores case; translations keep their spelling.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], *, source: str = "") -> None:
        """Build from (word, translation) pairs; case is ignored by the rules of ``source``."""
        self.source = source
        entries: dict[str, dict[str, None]] = {}
        for word, group in groupby(pairs, key=itemgetter(0)):
            translations = entries.setdefault(self.normalise(word), {})
            translations.update((translation, None) for _, translation in group if translation)
        self._entries = {
            word: tuple(translations)
            for word, translations in entries.items()
            if word and translations
        }

    def translations(self, word: str) -> tuple[str, ...]:
        """Return a word's translations; none where the dictionary lacks it."""
        return self._entries.get(self.normalise(word), ())

    def normalise(self, word: str) -> str:
        """Return the spelling under which a word is looked up."""
        return _normalise(word, self.source)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each word with each of its translations."""
        for word, translations in self._entries.items():
            for translation in translations:
                yield word, translation

    def reversed(self, *, source: str = "") -> Dictionary:
        """Return the reverse dictionary; ``source`` is the translations' language."""
        pairs = ((translation, word) for word, translation in self.pairs())
        return Dictionary(pairs, source=source)

    def ranked(self, counts: Mapping[str, int]) -> Dictionary:
        """Return the dictionary with each word's translations sorted by frequency.

        Dictionaries list every sense of a word, and rare ones may come first.
        ``counts`` are of lower-case words, as a lexicon's. Among translations without a
        count, words come before phrases.
        """

        def sort_key(translation: str) -> tuple[int, int]:
            return -counts.get(translation.lower(), 0), translation.count(" ")

        ranked = Dictionary((), source=self.source)
        ranked._entries = {
            word: tuple(sorted(translations, key=sort_key))
            for word, translations in self._entries.items()
        }
        return ranked

    def __or__(self, other: Dictionary) -> Dictionary:
        """Merge two dictionaries; this one's translations come first."""
        return Dictionary((*self.pairs(), *other.pairs()), source=self.source)

    def __contains__(self, word: str) -> bool:
        return self.normalise(word) in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def save(self, path: str | Path) -> None:
        """Write one ``word<TAB>translation`` per line, as `open_dictionary` reads."""
        with atomic_write(path) as out:
            for word, translation in self.pairs():
                out.write(f"{word}\t{translation}\n")


def open_dictionary(
    path: str | Path, *, source: str = "", problems: Problems | None = None, reverse: bool = False
) -> Dictionary:
    """Open a dictionary file.

    Args:
        path: dictd's ``.index``, ``.dict`` or ``.dict.dz``; or a text file with
            ``word translation`` on each line, or ``word<TAB>translation``, optionally
            with a third column, a score by which translations are sorted, highest first.
        source: Language of the words that are looked up.
        problems: Collects malformed lines; without it the first is an error.
        reverse: Look up the file's translations, which are in ``source``, instead of
            its words.
    """
    from polyglance.text.dictd import read_dictd

    path = Path(path).expanduser()
    if path.name.endswith(_DICTD):
        dictionary = Dictionary(read_dictd(path), source="" if reverse else source)
        return dictionary.reversed(source=source) if reverse else dictionary
    problems = Problems(strict=True) if problems is None else problems
    dictionary = Dictionary(_read_pairs(path, source, problems, reverse=reverse), source=source)
    if not len(dictionary):
        raise DataError(f"{path}: expected a word and its translation on each line; there are none")
    return dictionary


def dictionary_exists(path: Path) -> bool:
    """Return whether the files that `open_dictionary` would read exist."""
    from polyglance.text.dictd import dictd_files

    if path.name.endswith(_DICTD):
        index, zipped, plain = dictd_files(path)
        return index.is_file() and (zipped.is_file() or plain.is_file())
    return path.is_file()


def _normalise(word: str, source: str) -> str:
    plain = word.isascii() and source not in ("tr", "az")  # in these I is not the capital of i
    return word.lower() if plain else normalise_word(word, source)


def _read_pairs(
    path: Path, source: str, problems: Problems, *, reverse: bool
) -> Iterator[tuple[str, str]]:
    """Yield words in the order of the file, the translations of each by falling score."""
    entries: dict[str, list[tuple[str, str, float]]] = {}
    for first, second, score in _read_rows(path, problems):
        word, translation = (second, first) if reverse else (first, second)
        entries.setdefault(_normalise(word, source), []).append((word, translation, score))
    for rows in entries.values():
        # The sort is stable: translations of equal score keep the file's order.
        for word, translation, _ in sorted(rows, key=lambda row: -row[2]):
            yield word, translation


def _read_rows(path: Path, problems: Problems) -> Iterator[tuple[str, str, float]]:
    for number, line in read_lines(path, problems):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")] if "\t" in line else line.split()
        try:
            word, translation, *score = columns
            (value,) = map(float, score or ["0"])
            if not word or not translation or math.isnan(value):
                raise ValueError
        except ValueError:
            problems.report(path, number, "expected a word and its translation")
            continue
        yield word, translation, value
