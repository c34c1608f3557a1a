"""Bilingual dictionaries: words of one language and what they are in another.

Read from what there is: pairs of words a line, as MUSE (Conneau et al. 2018)
publishes them; tables with tabs, as PanLex is exported; dictd's files, as
FreeDict's dictionaries are installed (`polyglance.text.dictd`).
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
    """Words and phrases with their translations, the first the best, as far as is known.

    Looking up does not mind capitals; translations keep their spelling.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], *, source: str = "") -> None:
        """``source`` is the language of the words, for those whose capitals are their own."""
        self.source = source
        entries: dict[str, dict[str, None]] = {}
        for word, together in groupby(pairs, key=itemgetter(0)):
            found = entries.setdefault(self.normalise(word), {})
            found.update((translation, None) for _, translation in together if translation)
        self._entries = {word: tuple(found) for word, found in entries.items() if word and found}

    def translations(self, word: str) -> tuple[str, ...]:
        """What a word is in the other language; nothing where the dictionary lacks it."""
        return self._entries.get(self.normalise(word), ())

    def normalise(self, word: str) -> str:
        """The spelling under which a word is looked up."""
        return _folded(word, self.source)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each word with each of its translations."""
        for word, found in self._entries.items():
            for translation in found:
                yield word, translation

    def reversed(self, *, source: str = "") -> Dictionary:
        """The dictionary from the other language to this one; ``source`` is the other's code."""
        return Dictionary(((there, here) for here, there in self.pairs()), source=source)

    def ranked(self, counts: Mapping[str, int]) -> Dictionary:
        """The same with each word's translations by how common they are, commonest first.

        Dictionaries list every sense a word ever had: a dog is a clamp before it
        is an animal. ``counts`` are of lower-case words, as a lexicon's. Among
        those not counted, words come before phrases.
        """

        def place(translation: str) -> tuple[int, int]:
            return -counts.get(translation.lower(), 0), translation.count(" ")

        ranked = Dictionary((), source=self.source)
        ranked._entries = {
            word: tuple(sorted(found, key=place)) for word, found in self._entries.items()
        }
        return ranked

    def __or__(self, other: Dictionary) -> Dictionary:
        """Both dictionaries; this one's translations come first."""
        return Dictionary((*self.pairs(), *other.pairs()), source=self.source)

    def __contains__(self, word: str) -> bool:
        return self.normalise(word) in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def save(self, path: str | Path) -> None:
        """Write a word and a translation a line, with a tab between, as `open_dictionary` reads."""
        with atomic_write(path) as out:
            for word, translation in self.pairs():
                out.write(f"{word}\t{translation}\n")


def open_dictionary(
    path: str | Path, *, source: str = "", problems: Problems | None = None, reverse: bool = False
) -> Dictionary:
    """Read a dictionary: dictd's ``.index``, ``.dict`` or ``.dict.dz``, else pairs a line.

    A line is ``word translation`` or, with tabs, ``word<TAB>translation`` and
    perhaps a third column, a score by which translations are put in order, the
    highest first. Malformed lines go to ``problems``; without it the first is an
    error. ``backwards`` reads it from the translations, in ``source``, to the words.
    """
    from polyglance.text.dictd import read_dictd

    path = Path(path).expanduser()
    if path.name.endswith(_DICTD):
        found = Dictionary(read_dictd(path), source="" if reverse else source)
        return found.reversed(source=source) if reverse else found
    problems = Problems(strict=True) if problems is None else problems
    found = Dictionary(_read_pairs(path, source, problems, backwards=reverse), source=source)
    if not len(found):
        raise DataError(f"{path}: expected a word and its translation a line, and there is none")
    return found


def dictionary_exists(path: Path) -> bool:
    """Whether there is something that `open_dictionary` could read."""
    from polyglance.text.dictd import dictd_files

    if path.name.endswith(_DICTD):
        index, zipped, plain = dictd_files(path)
        return index.is_file() and (zipped.is_file() or plain.is_file())
    return path.is_file()


def _folded(word: str, source: str) -> str:
    plain = word.isascii() and source not in ("tr", "az")  # whose I is not our i
    return word.lower() if plain else normalise_word(word, source)


def _read_pairs(
    path: Path, source: str, problems: Problems, *, backwards: bool
) -> Iterator[tuple[str, str]]:
    """Words in the order of the file, the translations of each by their scores."""
    entries: dict[str, list[tuple[str, str, float]]] = {}
    for here, there, score in _read_rows(path, problems):
        word, translation = (there, here) if backwards else (here, there)
        entries.setdefault(_folded(word, source), []).append((word, translation, score))
    for found in entries.values():
        # Python's sort leaves those of the same score as the file has them.
        for word, translation, _ in sorted(found, key=lambda row: -row[2]):
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
