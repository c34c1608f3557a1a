"""Parallel sentences from files, cut into words for the aligner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.languages import normalise_language
from polyglance.records import read_lines, read_manifest
from polyglance.text.segment import cut_words, normalise_word

Words = list[str]


@dataclass(frozen=True)
class ParallelText:
    """The words of sentences and of their translations, as they are spelled."""

    pairs: list[tuple[Words, Words]]
    source: str = ""
    target: str = ""
    """Codes of the languages; empty where they were not told."""

    @classmethod
    def of(
        cls, texts: Iterable[tuple[str, str]], source: str = "", target: str = ""
    ) -> ParallelText:
        """Cut sentences by the rules of their languages or, untold, at spaces."""
        return cls(
            [(_cut(here, source), _cut(there, target)) for here, there in texts], source, target
        )

    def plain(self) -> Iterator[tuple[Words, Words]]:
        """The same in lower case, which is how words are counted."""
        for here, there in self.pairs:
            yield (
                [normalise_word(word, self.source) for word in here],
                [normalise_word(word, self.target) for word in there],
            )


def read_parallel(paths: Sequence[Path], languages: Sequence[str] | None) -> ParallelText:
    """Read two text files whose lines are translations, or two languages of a manifest.

    In a manifest the k-th caption of one language is the translation of the k-th
    of the other; of a record without both, or with more of one, there are fewer.
    """
    codes = tuple(normalise_language(code) for code in languages or ())
    if len(codes) not in (0, 2):
        raise PolyglanceError(f"--languages takes two, as en,de, not {','.join(languages or ())!r}")
    source, target = codes or ("", "")
    if len(paths) == 2:
        here, there = (_lines(path) for path in paths)
        if len(here) != len(there):
            raise DataError(
                f"{paths[0]} has {len(here):,} lines and {paths[1]} {len(there):,}: "
                "translations lie line by line"
            )
        return ParallelText.of(zip(here, there, strict=True), source, target)
    if len(paths) != 1 or not codes:
        raise PolyglanceError("give two text files, or a manifest and --languages en,de")
    found = (
        pair
        for record in read_manifest(paths[0])
        for pair in zip(
            record.captions.get(source, ()), record.captions.get(target, ()), strict=False
        )
    )
    text = ParallelText.of(found, source, target)
    if not text.pairs:
        raise DataError(f"{paths[0]}: no record has captions in both {source} and {target}")
    return text


def _lines(path: Path) -> list[str]:
    return [line for _, line in read_lines(path, Problems(strict=True))]


def _cut(text: str, language: str) -> Words:
    if not language:
        return text.split()
    return [text[start:end] for start, end in cut_words(text, language)]
