"""fastText's binary models (``.bin``), which give out-of-vocabulary words a vector too.

The file, in little-endian order: a magic number and a version; the training settings;
the vocabulary, each word ended by a zero byte and followed by its count and kind; the
input matrix, one row per word and then one per bucket of subwords; the output matrix,
which word vectors do not need.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, error_reason
from polyglance.text.subwords import SubwordConfig, subword_buckets
from polyglance.weights.binary_reader import BinaryReader

MAGIC = 793712314
_VERSIONS = (11, 12)
_SUPERVISED = 3
_END_OF_SENTENCE = "</s>"
_BATCH_SIZE = 1024
"""Words per batch; each has about forty subword rows."""


@dataclass(frozen=True, eq=False)
class FastTextModel:
    """Words, their subwords, and the input matrix."""

    words: tuple[str, ...]
    subwords: SubwordConfig
    matrix: NDArray[np.float32]
    """(words + buckets, dim), memory-mapped from the file."""

    @classmethod
    def open(cls, path: str | Path) -> FastTextModel:
        """Open a ``.bin`` file: read its vocabulary, memory-map its matrix."""
        path = Path(path)
        try:
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                return _read(path, BinaryReader(data))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error_reason(error)})") from error
        except (ValueError, struct.error, IndexError) as error:
            raise DataError(
                f"{path}: the file is damaged or truncated: download it again ({error})"
            ) from error

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return int(self.matrix.shape[1])

    def vectors(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the mean of each word's rows, (n, dim), and which words have any, (n,)."""
        vectors = np.zeros((len(words), self.dim), np.float32)
        known = np.zeros(len(words), bool)
        for start in range(0, len(words), _BATCH_SIZE):
            block = words[start : start + _BATCH_SIZE]
            rows, counts = self.subword_rows(block)
            has_rows = counts > 0
            ends = np.cumsum(counts)
            if len(rows):
                sums = np.add.reduceat(self.matrix[rows], (ends - counts)[has_rows], axis=0)
                vectors[start : start + len(block)][has_rows] = sums / counts[has_rows, None]
            known[start : start + len(block)] = has_rows
        return vectors, known

    def subword_rows(self, words: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the row indices of all words, concatenated, and the number of rows of each.

        A word of the vocabulary has its own row first, then its subwords'.
        """
        own = np.array([self._row_of.get(word, -1) for word in words], np.int64)
        # </s> is in the vocabulary but has no subwords.
        buckets, counts = subword_buckets(
            ["" if word == _END_OF_SENTENCE else word for word in words], self.subwords
        )
        word_index = np.repeat(np.arange(len(words)), counts)
        keep = np.array([word != _END_OF_SENTENCE for word in words], bool)[word_index]
        buckets, word_index = buckets[keep], word_index[keep]
        known = np.flatnonzero(own >= 0)
        word_indices = np.concatenate([known, word_index])
        rows = np.concatenate([own[known], buckets + len(self.words)])
        order = np.argsort(word_indices, kind="stable")
        return rows[order], np.bincount(word_indices, minlength=len(words))

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}


def _read(path: Path, reader: BinaryReader) -> FastTextModel:
    magic, version = reader.unpack("2i")
    if magic != MAGIC:
        raise DataError(
            f"{path} is not a fastText model: expected a .bin file, unzipped if it was zipped"
        )
    if version not in _VERSIONS:
        raise DataError(f"{path} has version {version} of fastText's format: expected 11 or 12")
    (width, _window, _epochs, _min_count, _negatives, _word_ngrams, _loss, kind, buckets,
     min_n, max_n, _rate, _sampling) = reader.unpack("12id")  # fmt: skip
    if version == 11 and kind == _SUPERVISED:  # these have no subwords
        max_n = 0
    words = list(_words(path, reader))
    if reader.unpack("?")[0]:
        raise DataError(f"{path} is a quantised model: use the .bin or .vec that it was made from")
    rows, columns = reader.unpack("2q")
    if columns != width or rows != len(words) + buckets:
        raise ValueError(f"a matrix of {rows} x {columns} where {len(words)} words have {width}")
    if reader.offset + rows * columns * 4 > len(reader.data):
        raise ValueError("vectors are missing")
    matrix = np.memmap(path, "<f4", mode="r", offset=reader.offset, shape=(rows, columns))
    return FastTextModel(tuple(words), SubwordConfig(min_n, max_n, buckets), matrix)


def _words(path: Path, reader: BinaryReader) -> Iterator[str]:
    entries, known, labels, _tokens, pruned = reader.unpack("3i2q")
    if pruned >= 0:
        raise DataError(f"{path} has pruned subwords: use the model that it was made from")
    if entries != known + labels:
        raise ValueError(f"{entries} entries for {known} words and {labels} labels")
    for number in range(entries):
        word = reader.read_c_string()
        reader.unpack("qb")
        if number < known:  # a classifier's labels come last and have no vector
            yield word.decode(errors="replace")
