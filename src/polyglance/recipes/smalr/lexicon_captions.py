"""Captions as words of a lexicon, prepared once for all models that are compared on them.

Captions are split into the words of one lexicon, that of the training captions, and words have
vectors. Every variant of the lexicon (rare words dropped or replaced by English ones, one
language alone, queries translated word by word) is then a mapping from word id to word id.
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
from polyglance.records import Record, read_manifest
from polyglance.text import lexicon as lexicon_code
from polyglance.text import segment as segment_code
from polyglance.text import words as word_code
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.text.lexicon import MASK_ID, PAD_ID, Lexicon, LexiconTokenizer, texts_by_language
from polyglance.text.segment import normalise_word
from polyglance.training import skipgram as skipgram_code
from polyglance.training import word_vectors as vector_code
from polyglance.training.word_vectors import SKIPGRAM, vectors_for
from polyglance.utils.fingerprint import file_stats, fingerprint
from polyglance.weights.cache import make_once

Indices = NDArray[np.int64]
SPLITS = ("train", "validation", "test")
_CODE = (lexicon_code, segment_code, word_code, skipgram_code, vector_code)


@dataclass(frozen=True, eq=False)
class LexiconCaptions:
    """A lexicon, a vector for each of its words, and captions as word ids."""

    lexicon: Lexicon
    vectors: NDArray[np.float32]
    """``(words, width)``."""
    captions: Mapping[str, CaptionTable]
    """By split. In validation and test, a caption of unknown words alone is one padding word, so
    that all models get the same queries."""
    word_counts: Indices
    """``(records, languages)``: number of words in the test captions, known or not."""

    def with_lexicon(self, lexicon: Lexicon) -> LexiconCaptions:
        """Return the same captions in the words of another lexicon, a subset of this one."""
        mapping = self.mapping_to(lexicon)
        own = np.array([self._word_id(lexicon, n) for n in range(len(lexicon))], np.int64)
        captions = {
            split: remap_words(table, mapping, lexicon.languages, keep_empty=split != "train")
            for split, table in self.captions.items()
        }
        return LexiconCaptions(lexicon, self.vectors[own], captions, self.word_counts)

    def mapping_to(self, lexicon: Lexicon) -> Indices:
        """Return for each word its id in another lexicon; padding for those it lacks."""
        mapping = np.zeros(len(self.lexicon), np.int64)
        for number, (word, language) in enumerate(self._words()):
            if language in lexicon.languages:
                mapping[number] = lexicon.word_id(word, language) or PAD_ID
        mapping[MASK_ID] = MASK_ID
        return mapping

    def translations(self, source: str, target: str, dictionary: Dictionary) -> Indices:
        """Return for each word of the source language the id of its translation, else padding.

        That is the first translation in the lexicon, since dictionaries list the best first.
        """
        mapping = np.zeros(len(self.lexicon), np.int64)
        for number, (word, language) in enumerate(self._words()):
            if language == source:
                ids = (
                    self.lexicon.word_id(normalise_word(text, target), target)
                    for text in dictionary.translations(word)
                )
                mapping[number] = next(filter(None, ids), PAD_ID)
        return mapping

    def _words(self) -> list[tuple[str, str]]:
        languages = (*self.lexicon.languages, "")  # the last for padding and mask, whose id is -1
        language_ids = self.lexicon.language_ids
        return [(w, languages[language_ids[n]]) for n, w in enumerate(self.lexicon.words)]

    def _word_id(self, lexicon: Lexicon, number: int) -> int:
        """Return the id here of a word of another lexicon."""
        language = int(lexicon.language_ids[number])
        if language < 0:
            return number
        word_id = self.lexicon.word_id(lexicon.words[number], lexicon.languages[language])
        assert word_id is not None  # the other is a subset of this lexicon
        return word_id


def remap_words(
    table: CaptionTable,
    mapping: Indices,
    languages: Sequence[str] | None = None,
    *,
    keep_empty: bool = True,
) -> CaptionTable:
    """Return captions with other word ids; words that become padding are dropped.

    Args:
        table: The captions.
        mapping: New id of each word.
        languages: Only captions in these languages are kept, and numbered by them; None for
            all as they are.
        keep_empty: Whether a caption that loses all words becomes one padding word; otherwise
            it is dropped.
    """
    codes = table.language_codes if languages is None else tuple(languages)
    new_ids = np.array(
        [codes.index(n) if n in codes else -1 for n in table.language_codes], np.int64
    )
    rows = np.flatnonzero(new_ids[table.language_ids] >= 0)
    ids, lengths = table.gather(rows)
    ids = mapping[ids].astype(np.int32)
    caption = np.repeat(np.arange(len(rows)), lengths)
    is_word = ids != PAD_ID
    lengths = np.bincount(caption[is_word], minlength=len(rows))
    empty = np.flatnonzero(lengths == 0)
    if keep_empty:
        ids = np.insert(ids[is_word], np.cumsum(lengths)[empty], PAD_ID)
        lengths = np.maximum(1, lengths)
    else:
        ids, rows, lengths = ids[is_word], np.delete(rows, empty), np.delete(lengths, empty)
    return CaptionTable(
        token_ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        record_ids=table.record_ids[rows],
        language_ids=new_ids[table.language_ids[rows]],
        language_codes=codes,
        num_records=table.num_records,
    )


def prepare_captions(
    manifests: Mapping[str, Path],
    languages: Sequence[str],
    vectors: str,
    width: int,
    *,
    cache_dir: Path,
    device: str = "cpu",
) -> LexiconCaptions:
    """Tokenise the captions of all splits and make word vectors, or open them from the cache.

    Args:
        manifests: By split.
        languages: Languages to keep.
        vectors: Source of word vectors, as `vectors_for` takes it.
        width: Of the word vectors.
        cache_dir: Keeps the result, for other runs and processes.
        device: Where an encoder runs.
    """
    settings = [list(languages), vectors, width, _vector_files(vectors, languages)]
    name = fingerprint(settings, *(manifests[split] for split in SPLITS), *_CODE)
    folder = cache_dir / f"words-{name}"

    def make(partial: Path) -> None:
        records = {split: list(read_manifest(path)) for split, path in manifests.items()}
        texts = texts_by_language(records["train"], languages)
        lexicon = Lexicon.from_texts(texts)
        lexicon.save(partial)
        table = vectors_for(lexicon, vectors, texts=texts, width=width, device=device, quiet=False)
        np.save(partial / "vectors.npy", table.astype(np.float16), allow_pickle=False)
        counts = count_words(records["test"], lexicon)
        np.save(partial / "word_counts.npy", counts, allow_pickle=False)
        for split, split_records in records.items():
            captions = caption_table(split_records, lexicon, keep_empty=split != "train")
            np.savez_compressed(
                partial / f"{split}.npz",
                token_ids=captions.token_ids,
                offsets=captions.offsets,
                record_ids=captions.record_ids,
                language_ids=captions.language_ids,
                num_records=np.array(captions.num_records),
            )

    make_once(folder, lambda path: path.is_dir(), make)
    return _open(folder, tuple(manifests))


def _vector_files(vectors: str, languages: Sequence[str]) -> list[list[tuple[str, int, int]]]:
    """Return what identifies the state of the files that word vectors come from."""
    if vectors == SKIPGRAM:
        return []
    if "{language}" not in vectors:
        return [file_stats(weights.folder(vectors))]
    paths = (Path(vectors.replace("{language}", code)) for code in languages)
    return [file_stats(path) for path in paths if path.is_file()]


@lru_cache(maxsize=2)
def _open(folder: Path, splits: tuple[str, ...]) -> LexiconCaptions:
    lexicon = Lexicon.open(folder)
    vectors = np.load(folder / "vectors.npy", allow_pickle=False).astype(np.float32)
    captions = {}
    for split in splits:
        with np.load(folder / f"{split}.npz", allow_pickle=False) as arrays:
            captions[split] = CaptionTable(
                token_ids=arrays["token_ids"],
                offsets=arrays["offsets"],
                record_ids=arrays["record_ids"],
                language_ids=arrays["language_ids"],
                language_codes=lexicon.languages,
                num_records=int(arrays["num_records"]),
            )
    word_counts = np.load(folder / "word_counts.npy", allow_pickle=False)
    return LexiconCaptions(lexicon, vectors, captions, word_counts)


def caption_table(records: Sequence[Record], lexicon: Lexicon, *, keep_empty: bool) -> CaptionTable:
    """Return the captions of records as word ids, in the languages of a lexicon."""
    tokenizers = {
        code: NeverEmpty(tokenizer) if keep_empty else tokenizer
        for code, tokenizer in lexicon.tokenizers.items()
    }
    return CaptionTable.build(records, tokenizers, languages=lexicon.languages)


def count_words(records: Sequence[Record], lexicon: Lexicon) -> Indices:
    """Return the number of caption words, ``(records, languages)``, in a lexicon's languages."""
    split_words = {code: tokenizer.words for code, tokenizer in lexicon.tokenizers.items()}
    return np.array(
        [
            [
                sum(len(split_words[code](text)) for text in record.captions.get(code, ()))
                for code in lexicon.languages
            ]
            for record in records
        ],
        np.int64,
    )


class NeverEmpty:
    """Encodes a text of unknown words alone as one padding word."""

    def __init__(self, tokenizer: LexiconTokenizer) -> None:
        self.tokenizer = tokenizer

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the word ids of each text."""
        return [ids or [PAD_ID] for ids in self.tokenizer.encode_batch(texts)]


def select_records(table: CaptionTable, records: Indices) -> CaptionTable:
    """Return the captions of some records, which are numbered anew."""
    new_ids = np.full(table.num_records, -1, np.int64)
    new_ids[records] = np.arange(len(records))
    rows = np.flatnonzero(new_ids[table.record_ids] >= 0)
    ids, lengths = table.gather(rows)
    return replace(
        table,
        token_ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        record_ids=new_ids[table.record_ids[rows]],
        language_ids=table.language_ids[rows],
        num_records=len(records),
    )


class DictionaryFiles:
    """Dictionaries by language pair, in files; other pairs go through English."""

    def __init__(self, pattern: str, *, pivot: str = "en") -> None:
        """``pattern`` is a path with ``{source}`` and ``{target}`` in it."""
        if "{source}" not in pattern or "{target}" not in pattern:
            raise PolyglanceError(
                f"dictionaries are {pattern!r}: give a path with {{source}} and {{target}} in it"
            )
        self.pattern, self.pivot = pattern, pivot

    def open(self, source: str, target: str) -> Dictionary:
        """Open the dictionary of two languages."""
        return _dictionary(
            self.pattern.replace("{source}", source).replace("{target}", target), source
        )

    def mapping(self, texts: LexiconCaptions, source: str, target: str) -> Indices:
        """Return for each word the id of its translation, through the pivot where needed."""
        if source == target:
            return np.arange(len(texts.lexicon))
        if self.pivot in (source, target):
            return texts.translations(source, target, self.open(source, target))
        to_pivot = self.mapping(texts, source, self.pivot)
        return self.mapping(texts, self.pivot, target)[to_pivot]


@lru_cache(maxsize=32)
def _dictionary(path: str, source: str) -> Dictionary:
    return open_dictionary(path, source=source)
