"""Parallel sentences cut into words for the aligner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import PolyglanceError
from polyglance.languages import is_spaceless
from polyglance.records import Record, atomic_write
from polyglance.text.segment import cut_words, normalise_word

Words = list[str]

BETWEEN = "|||"
"""What fast_align has between a sentence and its translation."""


@dataclass(frozen=True)
class ParallelText:
    """The words of sentences and of their translations, as they are spelled."""

    pairs: list[tuple[Words, Words]]
    source: str = ""
    target: str = ""
    """Codes of the languages; empty where they were not told."""

    @classmethod
    def of(
        cls,
        texts: Iterable[tuple[str, str]],
        source: str = "",
        target: str = "",
        *,
        segment: bool = False,
    ) -> ParallelText:
        """Cut sentences by the rules of their languages or, untold, at spaces.

        With ``segment`` languages without spaces are cut by a segmenter with a
        dictionary, into words instead of characters.
        """
        ours, theirs = (segment and bool(code) and is_spaceless(code) for code in (source, target))
        if segment and not (ours or theirs):
            raise PolyglanceError(
                "--segment cuts a language without spaces: name it, as --languages en,zh"
            )
        return cls(
            [(_cut(here, source, ours), _cut(there, target, theirs)) for here, there in texts],
            source,
            target,
        )

    @classmethod
    def from_records(
        cls, records: Iterable[Record], source: str, target: str, *, segment: bool = False
    ) -> ParallelText:
        """The captions of two languages, the k-th of one the translation of the other's k-th.

        Of a record without both, or with more of one, there are fewer.
        """
        texts = (
            pair
            for record in records
            for pair in zip(
                record.captions.get(source, ()), record.captions.get(target, ()), strict=False
            )
        )
        return cls.of(texts, source, target, segment=segment)

    def plain(self) -> Iterator[tuple[Words, Words]]:
        """The same in lower case, which is how words are counted."""
        for here, there in self.pairs:
            yield (
                [normalise_word(word, self.source) for word in here],
                [normalise_word(word, self.target) for word in there],
            )

    def write(self, path: str | Path) -> int:
        """Write the words as fast_align reads them, a pair a line, and return their number."""
        with atomic_write(path) as out:
            for here, there in self.pairs:
                out.write(" ".join([*here, BETWEEN, *there]) + "\n")
        return len(self.pairs)


def _cut(text: str, language: str, segment: bool) -> Words:
    if not language:
        return text.split()
    return [text[start:end] for start, end in cut_words(text, language, dictionary=segment)]
