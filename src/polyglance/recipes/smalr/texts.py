"""The words of a corpus, prepared once for all models that are compared on it.

Captions are cut into the words of one lexicon, those of the training captions,
and words have vectors. Every variant of the lexicon (rare words dropped, rare
words as English ones, one language alone, queries translated word by word) is then
a table from number to number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance import weights
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.keys import fingerprint, stamps
from polyglance.records import Record, read_manifest
from polyglance.text import lexicon as lexicon_code
from polyglance.text import segment as segment_code
from polyglance.text import words as word_code
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.text.lexicon import MASK, PAD, Lexicon, LexiconTokenizer, texts_by_language
from polyglance.text.segment import normalise_word
from polyglance.training import skipgram as skipgram_code
from polyglance.training import word_vectors as vector_code
from polyglance.training.word_vectors import SKIPGRAM, vectors_for
from polyglance.weights.cache import make_once

Indices = NDArray[np.int64]
SPLITS = ("train", "validation", "test")
_CODE = (lexicon_code, segment_code, word_code, skipgram_code, vector_code)


@dataclass(frozen=True, eq=False)
class WordTexts:
    """A lexicon, a vector for each of its words, and captions by number."""

    lexicon: Lexicon
    vectors: NDArray[np.float32]
    captions: Mapping[str, CaptionTable]
    """By split; in those to be measured a caption of unknown words alone is one padding word, so
    that all models are asked the same."""
    said: Indices
    """``(records, languages)``: how many words the test captions have, known ones or not."""

    def among(self, lexicon: Lexicon) -> WordTexts:
        """The same captions in the words of another lexicon, a part of this one."""
        numbers = self.numbers(lexicon)
        own = np.array([self._row(lexicon, n) for n in range(len(lexicon))], np.int64)
        captions = {
            split: renumbered(table, numbers, lexicon.languages, keep_empty=split != "train")
            for split, table in self.captions.items()
        }
        return WordTexts(lexicon, self.vectors[own], captions, self.said)

    def numbers(self, lexicon: Lexicon) -> Indices:
        """For each word here its number in another lexicon; 0 for those it lacks."""
        found = np.zeros(len(self.lexicon), np.int64)
        for number, (word, language) in enumerate(self._words()):
            if language in lexicon.languages:
                found[number] = lexicon.number(word, language) or PAD
        found[MASK] = MASK
        return found

    def translations(self, source: str, target: str, dictionary: Dictionary) -> Indices:
        """For each word here its translation, if it is of the source language and has one.

        That is the first that the lexicon knows: the dictionary has the best first.
        """
        found = np.zeros(len(self.lexicon), np.int64)
        for number, (word, language) in enumerate(self._words()):
            if language == source:
                known = (self._number(t, target) for t in dictionary.translations(word))
                found[number] = next(filter(None, known), PAD)
        return found

    def _number(self, word: str, language: str) -> int | None:
        return self.lexicon.number(normalise_word(word, language), language)

    def _words(self) -> list[tuple[str, str]]:
        languages = (*self.lexicon.languages, "")  # the last is that of padding and mask
        spoken = self.lexicon.language_of
        return [(w, languages[spoken[n]]) for n, w in enumerate(self.lexicon.words)]

    def _row(self, lexicon: Lexicon, number: int) -> int:
        """The number here of another lexicon's word."""
        language = int(lexicon.language_of[number])
        if language < 0:
            return number
        here = self.lexicon.number(lexicon.words[number], lexicon.languages[language])
        assert here is not None  # a part of this lexicon
        return here


def renumbered(
    table: CaptionTable,
    numbers: Indices,
    languages: Sequence[str] | None = None,
    *,
    keep_empty: bool = True,
) -> CaptionTable:
    """Captions with other numbers for their words; words that become padding are dropped.

    Only captions in ``languages`` stay, which is then what languages are counted by.
    A caption that loses all words becomes one padding word, or is dropped.
    """
    names = table.names if languages is None else tuple(languages)
    kept = np.array([names.index(n) if n in names else -1 for n in table.names], np.int64)
    rows = np.flatnonzero(kept[table.languages] >= 0)
    ids, lengths = table.gather(rows)
    ids = numbers[ids].astype(np.int32)
    owner = np.repeat(np.arange(len(rows)), lengths)
    known = ids != PAD
    lengths = np.bincount(owner[known], minlength=len(rows))
    empty = np.flatnonzero(lengths == 0)
    if keep_empty:
        ids = np.insert(ids[known], np.cumsum(lengths)[empty], PAD)
        lengths = np.maximum(1, lengths)
    else:
        ids, rows, lengths = ids[known], np.delete(rows, empty), np.delete(lengths, empty)
    return CaptionTable(
        ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        owners=table.owners[rows],
        languages=kept[table.languages[rows]],
        names=names,
        records=table.records,
    )


def prepare_texts(
    manifests: Mapping[str, Path],
    languages: Sequence[str],
    vectors: str,
    width: int,
    *,
    cache: Path,
    device: str = "cpu",
) -> WordTexts:
    """Cut and number the captions of each split's manifest, and find the words' vectors.

    ``cache`` keeps both: the next run, or another process, reads what is there.
    """
    asked = [list(languages), vectors, width, _vector_files(vectors, languages)]
    name = fingerprint(asked, *(manifests[split] for split in SPLITS), *_CODE)
    folder = cache / f"words-{name}"

    def make(partial: Path) -> None:
        records = {split: list(read_manifest(path)) for split, path in manifests.items()}
        texts = texts_by_language(records["train"], languages)
        lexicon = Lexicon.from_texts(texts)
        lexicon.save(partial)
        found = vectors_for(lexicon, vectors, texts=texts, width=width, device=device, quiet=False)
        np.save(partial / "vectors.npy", found.astype(np.float16), allow_pickle=False)
        np.save(partial / "said.npy", words_said(records["test"], lexicon), allow_pickle=False)
        for split, some in records.items():
            table = caption_table(some, lexicon, keep_empty=split != "train")
            np.savez_compressed(
                partial / f"{split}.npz",
                ids=table.ids,
                offsets=table.offsets,
                owners=table.owners,
                languages=table.languages,
                records=np.array(table.records),
            )

    make_once(folder, lambda path: path.is_dir(), make)
    return _open(folder, tuple(manifests))


def _vector_files(vectors: str, languages: Sequence[str]) -> list[list[tuple[str, int, int]]]:
    """What tells one state of the files that words have their vectors from from another."""
    if vectors == SKIPGRAM:
        return []
    if "{language}" not in vectors:
        return [stamps(weights.folder(vectors))]
    paths = (Path(vectors.replace("{language}", code)) for code in languages)
    return [stamps(path) for path in paths if path.is_file()]


@lru_cache(maxsize=2)
def _open(folder: Path, splits: tuple[str, ...]) -> WordTexts:
    lexicon = Lexicon.open(folder)
    vectors = np.load(folder / "vectors.npy", allow_pickle=False).astype(np.float32)
    captions = {}
    for split in splits:
        with np.load(folder / f"{split}.npz", allow_pickle=False) as arrays:
            parts = {name: arrays[name] for name in ("ids", "offsets", "owners", "languages")}
            captions[split] = CaptionTable(
                **parts, names=lexicon.languages, records=int(arrays["records"])
            )
    return WordTexts(lexicon, vectors, captions, np.load(folder / "said.npy", allow_pickle=False))


def caption_table(records: Sequence[Record], lexicon: Lexicon, *, keep_empty: bool) -> CaptionTable:
    """The captions of records by number, in the languages of a lexicon."""
    tokenizers = {
        code: _NeverEmpty(tokenizer) if keep_empty else tokenizer
        for code, tokenizer in lexicon.tokenizers.items()
    }
    return CaptionTable.build(records, tokenizers, languages=lexicon.languages)


def words_said(records: Sequence[Record], lexicon: Lexicon) -> Indices:
    """How many words the captions of each record have, by the languages of a lexicon."""
    cut = {code: tokenizer.words for code, tokenizer in lexicon.tokenizers.items()}
    return np.array(
        [
            [
                sum(len(cut[code](text)) for text in record.captions.get(code, ()))
                for code in lexicon.languages
            ]
            for record in records
        ],
        np.int64,
    )


class _NeverEmpty:
    """A text of unknown words alone is one padding word."""

    def __init__(self, tokenizer: LexiconTokenizer) -> None:
        self.tokenizer = tokenizer

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids or [PAD] for ids in self.tokenizer.encode_batch(texts)]


def only_records(table: CaptionTable, kept: Indices) -> CaptionTable:
    """The captions of some records, which are numbered anew."""
    place = np.full(table.records, -1, np.int64)
    place[kept] = np.arange(len(kept))
    rows = np.flatnonzero(place[table.owners] >= 0)
    ids, lengths = table.gather(rows)
    return replace(
        table,
        ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        owners=place[table.owners[rows]],
        languages=table.languages[rows],
        records=len(kept),
    )


class Dictionaries:
    """Files of dictionaries by pair of languages, and what follows from them through English."""

    def __init__(self, pattern: str, *, pivot: str = "en") -> None:
        """``pattern`` is a path with ``{source}`` and ``{target}`` in it."""
        if "{source}" not in pattern or "{target}" not in pattern:
            raise PolyglanceError(
                f"dictionaries are {pattern!r}: give a path with {{source}} and {{target}} in it"
            )
        self.pattern, self.pivot = pattern, pivot

    def open(self, source: str, target: str) -> Dictionary:
        """The dictionary of two languages."""
        return _dictionary(
            self.pattern.replace("{source}", source).replace("{target}", target), source
        )

    def numbers(self, texts: WordTexts, source: str, target: str) -> Indices:
        """For each word its translation, through the pivot where neither language is it."""
        if source == target:
            return np.arange(len(texts.lexicon))
        if self.pivot in (source, target):
            return texts.translations(source, target, self.open(source, target))
        there = self.numbers(texts, source, self.pivot)
        return self.numbers(texts, self.pivot, target)[there]


@lru_cache(maxsize=32)
def _dictionary(path: str, source: str) -> Dictionary:
    return open_dictionary(path, source=source)
