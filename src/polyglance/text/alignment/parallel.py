"""Parallel sentences, split into words for the aligner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import PolyglanceError
from polyglance.languages import is_spaceless
from polyglance.records import Record, atomic_write
from polyglance.text.segment import normalise_word, word_spans

Words = list[str]

SEPARATOR = "|||"
"""Stands between a sentence and its translation in fast_align's format."""


@dataclass(frozen=True)
class ParallelText:
    """The words of sentences and of their translations, in their original spelling."""

    pairs: list[tuple[Words, Words]]
    source: str = ""
    target: str = ""
    """Language codes; empty where unknown."""

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[tuple[str, str]],
        source: str = "",
        target: str = "",
        *,
        segment: bool = False,
    ) -> ParallelText:
        """Split sentence pairs into words by the rules of their languages.

        Args:
            texts: Sentences and their translations.
            source: Language of the sentences; empty splits at white space.
            target: Language of the translations; empty splits at white space.
            segment: Split languages without spaces into words by a dictionary-based
                segmenter, instead of into characters.
        """
        segment_source, segment_target = (
            segment and bool(code) and is_spaceless(code) for code in (source, target)
        )
        if segment and not (segment_source or segment_target):
            raise PolyglanceError(
                "--segment needs a language that is written without spaces: name it, as in "
                "--languages en,zh"
            )
        return cls(
            [
                (_split(ours, source, segment_source), _split(theirs, target, segment_target))
                for ours, theirs in texts
            ],
            source,
            target,
        )

    @classmethod
    def from_records(
        cls, records: Iterable[Record], source: str, target: str, *, segment: bool = False
    ) -> ParallelText:
        """Pair the captions of two languages: the k-th of one with the k-th of the other.

        Captions without a counterpart are left out.
        """
        texts = (
            pair
            for record in records
            for pair in zip(
                record.captions.get(source, ()), record.captions.get(target, ()), strict=False
            )
        )
        return cls.from_texts(texts, source, target, segment=segment)

    def lowercased(self) -> Iterator[tuple[Words, Words]]:
        """Yield the pairs with normalised, lower-case words."""
        for ours, theirs in self.pairs:
            yield (
                [normalise_word(word, self.source) for word in ours],
                [normalise_word(word, self.target) for word in theirs],
            )

    def write(self, path: str | Path) -> int:
        """Write one pair per line in fast_align's format and return the number of pairs."""
        with atomic_write(path) as out:
            for ours, theirs in self.pairs:
                out.write(" ".join([*ours, SEPARATOR, *theirs]) + "\n")
        return len(self.pairs)


def _split(text: str, language: str, segment: bool) -> Words:
    if not language:
        return text.split()
    return [text[start:end] for start, end in word_spans(text, language, use_segmenter=segment)]
