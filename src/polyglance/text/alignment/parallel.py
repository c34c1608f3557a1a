"""Parallel sentences cut into words for the aligner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from polyglance.records import Record
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

    @classmethod
    def from_records(cls, records: Iterable[Record], source: str, target: str) -> ParallelText:
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
        return cls.of(texts, source, target)

    def plain(self) -> Iterator[tuple[Words, Words]]:
        """The same in lower case, which is how words are counted."""
        for here, there in self.pairs:
            yield (
                [normalise_word(word, self.source) for word in here],
                [normalise_word(word, self.target) for word in there],
            )


def _cut(text: str, language: str) -> Words:
    if not language:
        return text.split()
    return [text[start:end] for start, end in cut_words(text, language)]
