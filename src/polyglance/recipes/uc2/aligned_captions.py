"""Captions of one image in two languages with aligned words, for VTLM.

VTLM needs pairs of translations. Where a corpus was translated, the k-th caption of a language
translates the k-th English one. Where people wrote independently, or nobody says which caption
was translated, the word aligner decides: of all captions of the image, the one that shares
most words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.batches.order import GroupedOrder
from polyglance.data.captions import CaptionTable
from polyglance.data.machine_captions import HUMAN, read_with_machine_captions
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.nn.packing import Packing
from polyglance.objectives.co_masking import CaptionPair
from polyglance.recipes.cross_encoder.captions import Streaming
from polyglance.recipes.cross_encoder.corpora import image_key
from polyglance.records import Record, atomic_write, read_lines
from polyglance.text.alignment import AlignerSettings, align
from polyglance.text.alignment.links import Link, format_pharaoh
from polyglance.text.alignment.parallel import ParallelText
from polyglance.text.segment import word_spans
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.mixture import take_in_order
from polyglance.utils.ragged import ragged_arange

Indices = NDArray[np.int64]
Pairing = Literal["closest", "same-place", "marked"]
Translated = Mapping[str, Mapping[str, frozenset[tuple[str, str]]]]
"""By image and language, English captions with their machine translations."""
Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """Two captions of one image, by their numbers, and their aligned words."""

    image: int
    first: int
    second: int
    links: tuple[Link, ...]
    """Positions of words, as `polyglance.text.segment.word_spans` counts them."""


def align_captions(
    records: Sequence[Record],
    source: str,
    target: str,
    *,
    pairing: Pairing = "closest",
    texts: Iterable[Record] = (),
    settings: AlignerSettings | None = None,
    min_lift: float = 0.0,
    translated: Translated | None = None,
) -> list[AlignedPair]:
    """Find a source caption for each target caption of an image, and align their words.

    Args:
        records: captioned images.
        source: a language.
        target: the other language.
        pairing: which captions translate each other.
        texts: further translations that the aligner learns from.
        settings: of the aligner.
        min_lift: keep links between words that are linked so many times as often as by chance;
            articles are in every caption and are linked to whatever is left over. 0 keeps all.
        translated: which captions a machine translated, for the pairing ``marked``.

    Returns:
        Pairs with the links that both directions of the aligner agree on.
    """
    candidates = [
        (number, first, second)
        for number, record in enumerate(records)
        for first, second in _candidates(record, source, target, pairing, translated or {})
    ]
    if not candidates:
        raise PolyglanceError(
            f"no image has captions in both {source} and {target}: choose languages that the"
            " corpus has, or set pretraining.mixture.vtlm to 0"
        )
    captions = [
        (records[number].captions[source][i], records[number].captions[target][j])
        for number, i, j in candidates
    ]
    extra = ParallelText.from_records(texts, source, target)
    pairs = [*ParallelText.from_texts(captions, source, target).lowercased(), *extra.lowercased()]
    links = align(pairs, settings, symmetry="intersection").links
    best: dict[tuple[int, int], tuple[float, AlignedPair]] = {}
    by_pair = zip(candidates, links, pairs, _lifted(pairs, links, min_lift), strict=False)
    for candidate, all_links, (ours, theirs), kept in by_pair:
        overlap = len(all_links) / max(1, len(ours) + len(theirs))
        pair = AlignedPair(*candidate, tuple(kept))
        known = best.get((pair.image, pair.second))
        if known is None or overlap > known[0]:
            best[pair.image, pair.second] = overlap, pair
    return [pair for _, pair in best.values()]


def _lifted(
    pairs: Sequence[tuple[Words, Words]], links: Sequence[Sequence[Link]], min_lift: float
) -> Iterator[list[Link]]:
    """Yield the links of each pair between words that occur together more than by chance."""
    ours, theirs = Counter[str](), Counter[str]()
    linked = Counter[tuple[str, str]]()
    for (words, others), own in zip(pairs, links, strict=True):
        ours.update(set(words))
        theirs.update(set(others))
        linked.update({(words[i], others[j]) for i, j in own})
    lift = {
        (word, other): count * len(pairs) / (ours[word] * theirs[other])
        for (word, other), count in linked.items()
    }
    for (words, others), own in zip(pairs, links, strict=True):
        yield [(i, j) for i, j in own if lift[words[i], others[j]] >= min_lift]


def _candidates(
    record: Record, source: str, target: str, pairing: Pairing, translated: Translated
) -> Iterator[tuple[int, int]]:
    ours, theirs = (record.captions.get(code, ()) for code in (source, target))
    if pairing == "same-place":
        yield from zip(range(len(ours)), range(len(theirs)), strict=False)
        return
    marked = translated.get(image_key(record), {}).get(target, frozenset())
    for first, second in product(range(len(ours)), range(len(theirs))):
        if pairing == "closest" or (ours[first], theirs[second]) in marked:
            yield first, second


def read_translated(manifests: Iterable[Path], source: str) -> Translated:
    """Read which captions a machine translated from which, by the marks beside manifests."""
    translated: dict[str, dict[str, frozenset[tuple[str, str]]]] = {}
    for manifest in manifests:
        for record, machine in read_with_machine_captions(manifest):
            for language, places in machine.items():
                texts = record.captions[language]
                pairs = frozenset(
                    (record.captions[source][place], text)
                    for place, text in zip(places, texts, strict=True)
                    if place != HUMAN
                )
                own = translated.setdefault(image_key(record), {})
                own[language] = own.get(language, frozenset()) | pairs
    return translated


def write_aligned(path: str | Path, pairs: Iterable[AlignedPair], key: str) -> None:
    """Write one line a pair: image, captions, links in Pharaoh format; ``key`` heads the file."""
    with atomic_write(path) as out:
        out.write(f"# {key}\n")
        for pair in pairs:
            numbers = f"{pair.image}\t{pair.first}\t{pair.second}"
            out.write(f"{numbers}\t{format_pharaoh(pair.links)}\n")


def read_aligned(path: str | Path, key: str) -> list[AlignedPair] | None:
    """Read what `write_aligned` wrote; None without a file, or if it has another key."""
    if not Path(path).is_file():
        return None
    pairs = []
    for number, line in read_lines(path, Problems(strict=True)):
        if number == 1:
            if line.strip() != f"# {key}":
                return None
            continue
        try:
            image, first, second, links = line.rstrip("\n").split("\t")
            parts = (link.split("-") for link in links.split())
            aligned = tuple((int(i), int(j)) for i, j in parts)
            pairs.append(AlignedPair(int(image), int(first), int(second), aligned))
        except ValueError as error:
            raise DataError(
                f"{path}:{number}: expected an image, two captions and links: move the file"
                " away to have it made again"
            ) from error
    return pairs


@dataclass(frozen=True, eq=False)
class FlatLinks:
    """Aligned sub-words of all pairs, end to end."""

    sizes: Indices
    """``(pairs,)``: links of each pair."""
    positions: NDArray[np.int16]
    """``(links, 2)``: positions in the first and in the second caption."""

    @classmethod
    def of(cls, links: Sequence[Sequence[tuple[int, int]]]) -> FlatLinks:
        """Flatten lists of links."""
        flat = [link for some in links for link in some]
        sizes = np.array([len(some) for some in links], np.int64)
        return cls(sizes, np.array(flat, np.int16).reshape(-1, 2))


class AlignedCaptions:
    """Pairs of translations in sub-words, with aligned sub-words, sampled evenly by language."""

    def __init__(
        self,
        table: CaptionTable,
        first: Indices,
        second: Indices,
        links: FlatLinks | Sequence[Sequence[tuple[int, int]]],
        *,
        streaming: Streaming | None = None,
    ) -> None:
        """Group the pairs by language.

        Args:
            table: all captions.
            first: ``(pairs,)`` rows of the table.
            second: ``(pairs,)`` rows of their translations.
            links: for each pair, positions of aligned sub-words.
            streaming: go through each language's pairs in shuffled order instead of drawing
                them with replacement, for a corpus on disk.
        """
        self.table, self.first, self.second = table, first, second
        flat = links if isinstance(links, FlatLinks) else FlatLinks.of(links)
        self._size = flat.sizes
        self._start = np.cumsum(self._size) - self._size
        self._from, self._to = flat.positions.T
        languages = table.language_ids[second]
        groups = [np.flatnonzero(languages == n) for n in np.unique(languages)]
        if not groups or not all(map(len, groups)):
            raise PolyglanceError(
                "no captions translate each other: set pretraining.mixture.vtlm to 0"
            )
        self._by_language = np.concatenate(groups)
        self._count = np.array([len(group) for group in groups], np.int64)
        self._order: GroupedOrder | None = None
        if streaming is not None:
            even = np.full(len(groups), 1 / len(groups))
            self._order = streaming.order(self._count, even)
        self._base = np.cumsum(self._count) - self._count

    @classmethod
    def from_links(
        cls,
        records: Sequence[Record],
        table: CaptionTable,
        tokenizer: Tokenizer,
        aligned: Mapping[tuple[str, str], Sequence[AlignedPair]],
        *,
        streaming: Streaming | None = None,
    ) -> AlignedCaptions:
        """Turn aligned words into aligned sub-words.

        Args:
            records: captioned images.
            table: all captions of the records.
            tokenizer: of the table.
            aligned: pairs by their two languages.
            streaming: go through the pairs in shuffled order, for a corpus on disk.

        Returns:
            All pairs, ready to be sampled.
        """
        nothing = np.zeros(0, np.int64)
        parts = [(nothing, nothing, nothing, np.zeros((0, 2), np.int16))]
        for languages, pairs in aligned.items():
            parts.append(subword_links(records, 0, table, tokenizer, languages, pairs))
        first, second, sizes = (np.concatenate([part[n] for part in parts]) for n in range(3))
        positions = np.concatenate([part[3] for part in parts])
        return cls(table, first, second, FlatLinks(sizes, positions), streaming=streaming)

    def __len__(self) -> int:
        return len(self.first)

    def sample(self, count: int, generator: np.random.Generator) -> Indices:
        """Sample the other language evenly, then a pair in it."""
        if self._order is not None:
            language, within = take_in_order(self._order, count, generator)
        else:
            language = generator.integers(len(self._count), size=count)
            within = generator.integers(self._count[language])
        pairs: Indices = self._by_language[self._base[language] + within]
        return pairs

    def gather(self, pairs: Indices) -> CaptionPair:
        """Pack both captions of each pair on the CPU."""
        ours, first = self.table.gather(self.first[pairs])
        theirs, second = self.table.gather(self.second[pairs])
        sizes = self._size[pairs].astype(np.int64)
        index = ragged_arange(self._start[pairs], sizes)
        pair_ids = np.repeat(np.arange(len(pairs)), sizes)
        begin = np.cumsum(first) - first, len(ours) + np.cumsum(second) - second
        links = np.stack(
            [begin[0][pair_ids] + self._from[index], begin[1][pair_ids] + self._to[index]]
        )
        ids = np.concatenate([ours, theirs]).astype(np.int64)
        return CaptionPair(
            torch.from_numpy(ids), Packing.of(first), Packing.of(second), torch.from_numpy(links)
        )


def word_tokens(text: str, language: str, tokenizer: Tokenizer, length: int) -> list[list[int]]:
    """Return the positions of each word's sub-words among the caption's ids.

    Args:
        text: the caption.
        language: of it.
        tokenizer: with spans.
        length: how many ids are kept; the last one ends the sentence.

    Returns:
        One list a word.
    """
    spans = tokenizer.encode_with_spans(text).spans
    if spans is None:
        raise PolyglanceError(
            "VTLM needs a tokenizer that knows the spans of sub-words: one with a tokenizer.json"
        )
    words = word_spans(text, language)
    starts, ends = [start for start, _ in words], [end for _, end in words]
    tokens: list[list[int]] = [[] for _ in words]
    begin, end = np.array(spans[: length - 1], np.int64).reshape(-1, 2).T
    # A sub-word may be part of a word, or span several where words are single characters.
    lowest = np.searchsorted(ends, begin, side="right")
    beyond = np.searchsorted(starts, end, side="left")
    for position, (low, high) in enumerate(zip(lowest.tolist(), beyond.tolist(), strict=True)):
        for word in range(low, high):
            tokens[word].append(position)
    return tokens


def subword_links(
    records: Sequence[Record],
    start: int,
    table: CaptionTable,
    tokenizer: Tokenizer,
    languages: tuple[str, str],
    pairs: Iterable[AlignedPair],
) -> tuple[Indices, Indices, Indices, NDArray[np.int16]]:
    """Turn aligned words of consecutive records into aligned sub-words.

    Args:
        records: captioned images, of which ``pairs`` have the numbers.
        start: the number of the first of them in the table.
        table: all captions of the corpus.
        tokenizer: of the table.
        languages: of the pairs.
        pairs: with aligned words.

    Returns:
        ``(pairs,)`` rows of both captions and numbers of links, and ``(links, 2)`` positions.
    """
    first, second, links = [], [], []
    tokens: dict[int, list[list[int]]] = {}

    def word_tokens_of(row: int, text: str, language: str) -> list[list[int]]:
        if row not in tokens:
            length = int(table.offsets[row + 1] - table.offsets[row])
            tokens[row] = word_tokens(text, language, tokenizer, length)
        return tokens[row]

    source, target = languages
    starts = [_first_rows(records, start, table, language) for language in languages]
    for pair in pairs:
        ours = starts[0][start + pair.image] + pair.first
        theirs = starts[1][start + pair.image] + pair.second
        captions = records[pair.image].captions
        here = word_tokens_of(ours, captions[source][pair.first], source)
        there = word_tokens_of(theirs, captions[target][pair.second], target)
        links.append([(a, b) for i, j in pair.links for a in here[i] for b in there[j]])
        first.append(ours)
        second.append(theirs)
    flat = FlatLinks.of(links)
    return np.array(first, np.int64), np.array(second, np.int64), flat.sizes, flat.positions


def _first_rows(
    records: Sequence[Record], start: int, table: CaptionTable, language: str
) -> dict[int, int]:
    """Return the table's first caption of each image in a language, of consecutive records."""
    rows = np.zeros(0, np.int64)
    if language in table.language_codes:
        low, high = np.searchsorted(table.record_ids, [start, start + len(records)])
        number = table.language_codes.index(language)
        rows = low + np.flatnonzero(table.language_ids[low:high] == number)
    if len(rows) != sum(len(record.captions.get(language, ())) for record in records):
        raise ValueError(f"the table lacks some of the captions in {language}")
    images, first = np.unique(table.record_ids[rows], return_index=True)
    return dict(zip(images.tolist(), rows[first].tolist(), strict=True))
