"""The captions of a corpus, tokenised ahead of time, so that a batch is one gather.

A Python loop over captions costs more than the accelerator's work; here a batch
of any size is a few vectorised reads of flat arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.records import Record

Indices = NDArray[np.int64]


class BatchTokenizer(Protocol):
    """What is needed of a tokenizer here."""

    def encode_batch(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        """The ids of each text."""
        ...


@dataclass(frozen=True, eq=False)
class CaptionTable:
    """All captions, ordered by record, then language; row ``r`` is one caption."""

    token_ids: NDArray[np.int32]
    """The sub-words of all captions, end to end."""
    offsets: Indices
    """Where each caption begins in ``ids``, and at last where the last one ends."""
    record_ids: Indices
    """The record that each caption describes."""
    language_ids: Indices
    """Each caption's language, as a position in ``names``."""
    language_codes: tuple[str, ...]
    num_records: int
    """How many records there are, those without captions included."""

    @classmethod
    def build(
        cls,
        records: Iterable[Record],
        tokenizer: BatchTokenizer | Mapping[str, BatchTokenizer],
        *,
        languages: Sequence[str] | None = None,
        max_tokens: int | None = None,
    ) -> CaptionTable:
        """Tokenise the captions of all records; ``longest`` keeps that many sub-words and the end.

        With ``languages`` only those are taken, and ``names`` has their order. There is
        one tokenizer for all, or one for each language.
        """
        names = list(languages or ())
        texts: list[str] = []
        places: list[tuple[int, int]] = []
        count = 0
        for count, record in enumerate(records, start=1):
            by_language: list[tuple[int, tuple[str, ...]]] = []
            for language, captions in record.captions.items():
                if language not in names:
                    if languages is not None:
                        continue
                    names.append(language)
                by_language.append((names.index(language), captions))
            for language_index, captions in sorted(by_language):
                texts += captions
                places += [(count - 1, language_index)] * len(captions)
        encoded = [_shorten(ids, max_tokens) for ids in _encode(texts, places, names, tokenizer)]
        # A tokenizer that drops unknown words may leave nothing, and nothing has no meaning.
        places = [place for place, ids in zip(places, encoded, strict=True) if len(ids)]
        encoded = [ids for ids in encoded if len(ids)]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(ids) for ids in encoded], out=offsets[1:])
        flat = np.fromiter((i for ids in encoded for i in ids), np.int32, count=int(offsets[-1]))
        owners, language_of = np.array(places, np.int64).reshape(-1, 2).T
        return cls(flat, offsets, owners.copy(), language_of.copy(), tuple(names), count)

    def __len__(self) -> int:
        return len(self.record_ids)

    @property
    def present_languages(self) -> set[str]:
        """The languages with captions in the table, which may be fewer than `language_codes`."""
        return {self.language_codes[number] for number in set(self.language_ids.tolist())}

    def gather(self, rows: Indices) -> tuple[NDArray[np.int32], Indices]:
        """The sub-words of these captions end to end, and the length of each."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        before = np.cumsum(lengths) - lengths
        places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        return self.token_ids[places], lengths

    def rows_in_language(self, language: str) -> Indices:
        """The rows of one language, in the order of the records."""
        if language not in self.language_codes:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.language_ids == self.language_codes.index(language))

    def sample(
        self,
        records: Indices,
        generator: np.random.Generator,
        *,
        weights: Mapping[str, float] | None = None,
        avoid_language_of: Indices | None = None,
    ) -> Indices:
        """One caption a record: first a language that it has, then one of its captions.

        Languages are drawn evenly, or by ``weights`` (one for each language that
        is to be drawn at all). Every record must have a caption to draw. Where
        captions ``beside`` of the same records were drawn before, the language is
        another than theirs wherever the record has another.
        """
        groups, total = self._groups, self._groups.even
        if weights is not None:
            mass = np.array([weights.get(name, 0.0) for name in self.language_codes])
            total = np.concatenate([[0.0], np.cumsum(mass[groups.language])])
        first, last = groups.of_record[records], groups.of_record[records + 1]
        low, high = total[first], total[last]
        if not (high > low).all():
            bare = int(records[np.flatnonzero(high <= low)[0]])
            raise ValueError(f"record {bare} has no caption in a language that is drawn")
        gap, size = high, np.zeros(len(records))  # where the language beside would be drawn
        if avoid_language_of is not None:
            other = np.searchsorted(groups.start, avoid_language_of, side="right") - 1
            gap, size = total[other], total[other + 1] - total[other]
            size = np.where(size < high - low, size, 0.0)
        aim = low + generator.random(len(records)) * (high - low - size)
        aim += np.where(aim >= gap, size, 0.0)
        group = np.searchsorted(total, aim, side="right") - 1
        group = np.clip(group, first, last - 1)
        within = generator.integers(groups.size[group])
        rows: Indices = groups.start[group] + within
        return rows

    def sample_in_languages(
        self, records: Indices, languages: Indices, generator: np.random.Generator
    ) -> Indices:
        """One caption a record in the language of this number; -1 where it has none."""
        groups = self._groups
        wanted = records * len(self.language_codes) + languages
        group = np.minimum(np.searchsorted(groups.place, wanted), len(groups.place) - 1)
        rows = groups.start[group] + generator.integers(groups.size[group])
        return np.where(groups.place[group] == wanted, rows, -1)

    @property
    def languages_per_record(self) -> Indices:
        """In how many languages each record has captions."""
        counts: Indices = np.diff(self._groups.of_record)
        return counts

    @cached_property
    def _groups(self) -> _Groups:
        """Runs of captions of one record in one language."""
        place = self.record_ids * max(1, len(self.language_codes)) + self.language_ids
        start = np.flatnonzero(np.diff(place, prepend=-1))
        size = np.diff(np.append(start, len(place)))
        of_record = np.searchsorted(self.record_ids[start], np.arange(self.num_records + 1))
        even = np.arange(len(start) + 1, dtype=np.float64)
        return _Groups(place[start], start, size, self.language_ids[start], of_record, even)


@dataclass(frozen=True, eq=False)
class _Groups:
    place: Indices
    """Which record and language each is of, in one number, ascending."""
    start: Indices
    size: Indices
    language: Indices
    of_record: Indices
    """The first group of each record, and at last the number of groups."""
    even: NDArray[np.float64]
    """Running totals of the groups' weights where all weigh the same."""


def _encode(
    texts: Sequence[str],
    places: Sequence[tuple[int, int]],
    names: Sequence[str],
    tokenizer: BatchTokenizer | Mapping[str, BatchTokenizer],
) -> Sequence[Sequence[int]]:
    """The ids of each text by the one tokenizer, or by that of its language."""
    if not isinstance(tokenizer, Mapping):
        return tokenizer.encode_batch(texts)
    encoded: list[Sequence[int]] = [()] * len(texts)
    for index, name in enumerate(names):
        rows = [row for row, (_, language) in enumerate(places) if language == index]
        if rows and name not in tokenizer:
            raise PolyglanceError(
                f"there is no tokenizer for captions in {name!r}, only for {', '.join(tokenizer)}"
            )
        if rows:
            found = tokenizer[name].encode_batch([texts[row] for row in rows])
            for row, ids in zip(rows, found, strict=True):
                encoded[row] = ids
    return encoded


def _shorten(ids: Sequence[int], longest: int | None) -> Sequence[int]:
    """Cut a caption that is too long, keeping the sign that ends it."""
    if longest is None or len(ids) <= longest:
        return ids
    return [*ids[: longest - 1], ids[-1]]
