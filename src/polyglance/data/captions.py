"""The captions of a corpus, tokenised ahead of time into flat arrays.

A batch of any size is a few vectorised reads; a Python loop over captions would take longer
than the accelerator's step.
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
from polyglance.utils.ragged import ragged_arange

Indices = NDArray[np.int64]


class BatchTokenizer(Protocol):
    """A tokenizer that encodes many texts at once."""

    def encode_batch(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        """Return the token ids of each text."""
        ...


@dataclass(frozen=True, eq=False)
class CaptionTable:
    """All captions, ordered by record, then by language; one row per caption."""

    token_ids: NDArray[np.int32]
    """Token ids of all captions, concatenated."""
    offsets: Indices
    """Offsets of the captions in ``token_ids``, (captions + 1)."""
    record_ids: Indices
    """Index of the record that each caption belongs to, (captions,)."""
    language_ids: Indices
    """Index of each caption's language in ``language_codes``, (captions,)."""
    language_codes: tuple[str, ...]
    num_records: int
    """Number of records, including those without captions."""

    @classmethod
    def build(
        cls,
        records: Iterable[Record],
        tokenizer: BatchTokenizer | Mapping[str, BatchTokenizer],
        *,
        languages: Sequence[str] | None = None,
        max_tokens: int | None = None,
    ) -> CaptionTable:
        """Tokenise the captions of records.

        Args:
            records: The corpus.
            tokenizer: One tokenizer for all languages, or one for each.
            languages: The languages to take, in the order of ``language_codes``; by default
                all.
            max_tokens: Maximum length; a longer caption is cut but keeps its last token.
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
        encoded = [_truncate(ids, max_tokens) for ids in _encode(texts, places, names, tokenizer)]
        # A tokenizer that drops unknown words may leave an empty caption: drop those.
        places = [place for place, ids in zip(places, encoded, strict=True) if len(ids)]
        encoded = [ids for ids in encoded if len(ids)]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(ids) for ids in encoded], out=offsets[1:])
        flat = np.fromiter((i for ids in encoded for i in ids), np.int32, count=int(offsets[-1]))
        record_ids, language_ids = np.array(places, np.int64).reshape(-1, 2).T
        return cls(flat, offsets, record_ids.copy(), language_ids.copy(), tuple(names), count)

    def __len__(self) -> int:
        return len(self.record_ids)

    @property
    def present_languages(self) -> set[str]:
        """Return the languages that have captions, perhaps fewer than ``language_codes``."""
        return {self.language_codes[number] for number in set(self.language_ids.tolist())}

    def gather(self, rows: Indices) -> tuple[NDArray[np.int32], Indices]:
        """Return the token ids of the given captions, concatenated, and their lengths."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        return self.token_ids[ragged_arange(starts, lengths)], lengths

    def rows_in_language(self, language: str) -> Indices:
        """Return the rows of one language, in the order of the records."""
        if language not in self.language_codes:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.language_ids == self.language_codes.index(language))

    def count(self, languages: Iterable[str]) -> int:
        """Return the number of captions in some languages."""
        return sum(len(self.rows_in_language(language)) for language in set(languages))

    def sample(
        self,
        records: Indices,
        generator: np.random.Generator,
        *,
        weights: Mapping[str, float] | None = None,
        avoid_language_of: Indices | None = None,
    ) -> Indices:
        """Draw one caption per record: first one of its languages, then one of its captions.

        Args:
            records: Record indices, each with at least one caption to draw.
            generator: The source of randomness.
            weights: Sampling weight of each language, 0 if absent; by default all equal.
            avoid_language_of: Rows drawn before for the same records; another language is
                drawn wherever the record has one.

        Returns:
            A row per record.
        """
        groups, total = self._groups, self._groups.uniform
        if weights is not None:
            mass = np.array([weights.get(name, 0.0) for name in self.language_codes])
            total = np.concatenate([[0.0], np.cumsum(mass[groups.language])])
        first, last = groups.of_record[records], groups.of_record[records + 1]
        low, high = total[first], total[last]
        if not (high > low).all():
            record = int(records[np.flatnonzero(high <= low)[0]])
            raise ValueError(f"record {record} has no caption in a language with a weight")
        gap, size = high, np.zeros(len(records))  # the interval of the language to avoid
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
        """Draw one caption per record in the given language index; -1 where it has none."""
        group, found = self._find_groups(records, languages)
        rows = self._groups.start[group] + generator.integers(self._groups.size[group])
        return np.where(found, rows, -1)

    def has_language(self, records: Indices, languages: Indices) -> NDArray[np.bool_]:
        """Return whether each record has captions in the given language index."""
        return self._find_groups(records, languages)[1]

    def _find_groups(
        self, records: Indices, languages: Indices
    ) -> tuple[Indices, NDArray[np.bool_]]:
        """Return the group of each record's captions in a language, and whether there is one."""
        groups = self._groups
        key = records * len(self.language_codes) + languages
        group = np.minimum(np.searchsorted(groups.key, key), len(groups.key) - 1)
        return group, groups.key[group] == key

    @property
    def languages_per_record(self) -> Indices:
        """Number of languages in which each record has captions, (records,)."""
        counts: Indices = np.diff(self._groups.of_record)
        return counts

    @cached_property
    def _groups(self) -> _Groups:
        """Runs of captions of one record in one language."""
        key = self.record_ids * max(1, len(self.language_codes)) + self.language_ids
        start = np.flatnonzero(np.diff(key, prepend=-1))
        size = np.diff(np.append(start, len(key)))
        of_record = np.searchsorted(self.record_ids[start], np.arange(self.num_records + 1))
        uniform = np.arange(len(start) + 1, dtype=np.float64)
        return _Groups(key[start], start, size, self.language_ids[start], of_record, uniform)


@dataclass(frozen=True, eq=False)
class _Groups:
    key: Indices
    """Record and language of each group in one ascending number."""
    start: Indices
    size: Indices
    language: Indices
    of_record: Indices
    """The first group of each record, then the number of groups, (records + 1)."""
    uniform: NDArray[np.float64]
    """Cumulative weights of the groups when all are equal, (groups + 1)."""


def _encode(
    texts: Sequence[str],
    places: Sequence[tuple[int, int]],
    names: Sequence[str],
    tokenizer: BatchTokenizer | Mapping[str, BatchTokenizer],
) -> Sequence[Sequence[int]]:
    """Encode texts with the one tokenizer, or each with that of its language."""
    if not isinstance(tokenizer, Mapping):
        return tokenizer.encode_batch(texts)
    encoded: list[Sequence[int]] = [()] * len(texts)
    for index, name in enumerate(names):
        rows = [row for row, (_, language) in enumerate(places) if language == index]
        if rows and name not in tokenizer:
            raise PolyglanceError(
                f"there is no tokenizer for captions in {name!r}: give one, or only captions in "
                f"{', '.join(tokenizer)}"
            )
        if rows:
            batch = tokenizer[name].encode_batch([texts[row] for row in rows])
            for row, ids in zip(rows, batch, strict=True):
                encoded[row] = ids
    return encoded


def _truncate(ids: Sequence[int], max_tokens: int | None) -> Sequence[int]:
    """Cut a caption to ``max_tokens`` tokens, keeping its last one."""
    if max_tokens is None or len(ids) <= max_tokens:
        return ids
    return [*ids[: max_tokens - 1], ids[-1]]
