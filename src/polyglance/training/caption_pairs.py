"""Linked captions ready to be drawn: in sub-words, with every language as often as any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing
from polyglance.objectives.co_masking import CaptionPair
from polyglance.records import Record
from polyglance.text.flat import spread
from polyglance.text.segment import cut_words
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.distribution import own_share
from polyglance.training.linked_captions import LinkedPair

Indices = NDArray[np.int64]


class CaptionPairs:
    """Captions of a table beside their translations, and the links of their sub-words."""

    def __init__(
        self,
        table: CaptionTable,
        first: Indices,
        second: Indices,
        links: Sequence[Sequence[tuple[int, int]]],
    ) -> None:
        """``first`` and ``second`` are rows of the table; ``links`` count sub-words in these."""
        self.table, self.first, self.second = table, first, second
        self._size = np.array([len(some) for some in links], np.int64)
        self._start = np.cumsum(self._size) - self._size
        flat = np.array([link for some in links for link in some], np.int64).reshape(-1, 2)
        self._from, self._to = flat.T
        languages = table.languages[second]
        groups = [own_share(np.flatnonzero(languages == n)) for n in np.unique(languages)]
        if not groups or not all(map(len, groups)):
            raise PolyglanceError("no captions are translations of each other: leave VTLM out")
        self._by_language = np.concatenate(groups)
        self._count = np.array([len(group) for group in groups], np.int64)
        self._base = np.cumsum(self._count) - self._count

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        table: CaptionTable,
        tokenizer: Tokenizer,
        linked: Mapping[tuple[str, str], Sequence[LinkedPair]],
    ) -> CaptionPairs:
        """Links of words, by pair of languages, as those of the sub-words that spell them.

        ``table`` is that of all captions of the records.
        """
        first, second, links = [], [], []
        pieces: dict[int, list[list[int]]] = {}

        def spelled(row: int, text: str, language: str) -> list[list[int]]:
            if row not in pieces:
                length = int(table.offsets[row + 1] - table.offsets[row])
                pieces[row] = word_pieces(text, language, tokenizer, length)
            return pieces[row]

        for (source, target), pairs in linked.items():
            starts = [_first_rows(records, table, language) for language in (source, target)]
            for pair in pairs:
                ours, theirs = (
                    starts[0][pair.picture] + pair.first,
                    starts[1][pair.picture] + pair.second,
                )
                said = records[pair.picture].captions
                here = spelled(ours, said[source][pair.first], source)
                there = spelled(theirs, said[target][pair.second], target)
                links.append([(a, b) for i, j in pair.links for a in here[i] for b in there[j]])
                first.append(ours)
                second.append(theirs)
        return cls(table, np.array(first, np.int64), np.array(second, np.int64), links)

    def __len__(self) -> int:
        return len(self.first)

    def draw(self, count: int, generator: np.random.Generator) -> Indices:
        """So many pairs: of each first the other language, evenly, then one in it."""
        language = generator.integers(len(self._count), size=count)
        within = generator.integers(self._count[language])
        pairs: Indices = self._by_language[self._base[language] + within]
        return pairs

    def gather(self, pairs: Indices) -> CaptionPair:
        """Both captions of each, packed on the processor."""
        ours, first = self.table.gather(self.first[pairs])
        theirs, second = self.table.gather(self.second[pairs])
        index = spread(self._start[pairs], self._size[pairs])
        owner = np.repeat(np.arange(len(pairs)), self._size[pairs])
        begin = np.cumsum(first) - first, len(ours) + np.cumsum(second) - second
        links = np.stack([begin[0][owner] + self._from[index], begin[1][owner] + self._to[index]])
        ids = np.concatenate([ours, theirs]).astype(np.int64)
        return CaptionPair(
            torch.from_numpy(ids), Packing.of(first), Packing.of(second), torch.from_numpy(links)
        )


def word_pieces(text: str, language: str, tokenizer: Tokenizer, length: int) -> list[list[int]]:
    """For each word of a caption the sub-words that spell it, as places among the caption's ids.

    ``length`` is how many ids were kept; the last of these is the sign that ends it.
    """
    spans = tokenizer.analyse(text).spans
    if spans is None:
        raise PolyglanceError(
            "VTLM needs a tokenizer that knows where sub-words lie in a text: one with a"
            " tokenizer.json"
        )
    cuts = cut_words(text, language)
    starts, ends = [start for start, _ in cuts], [end for _, end in cuts]
    pieces: list[list[int]] = [[] for _ in cuts]
    begin, end = np.array(spans[: length - 1], np.int64).reshape(-1, 2).T
    # A sub-word may spell a part of a word, or several where words are single characters.
    lowest = np.searchsorted(ends, begin, side="right")
    beyond = np.searchsorted(starts, end, side="left")
    for place, (low, high) in enumerate(zip(lowest.tolist(), beyond.tolist(), strict=True)):
        for word in range(low, high):
            pieces[word].append(place)
    return pieces


def _first_rows(records: Sequence[Record], table: CaptionTable, language: str) -> dict[int, int]:
    """Where the captions of each picture in a language begin in the table."""
    rows = table.of_language(language)
    if len(rows) != sum(len(record.captions.get(language, ())) for record in records):
        raise ValueError(f"the table lacks some of the captions in {language}")
    owners, first = np.unique(table.owners[rows], return_index=True)
    return dict(zip(owners.tolist(), rows[first].tolist(), strict=True))
