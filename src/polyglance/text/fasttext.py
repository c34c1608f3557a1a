"""fastText's binary models (``.bin``): every word has a vector, by its parts if need be.

The file, in little-endian order: a magic number and a version; the settings it
was trained with; the vocabulary, each word ended by a zero byte and followed by
its count and kind; the input matrix, one row a word and then one a bucket of
subwords; the output matrix, which vectors of words do not need.
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
_AT_ONCE = 1024
"""Words whose rows are gathered together; their subwords' rows are some forty times as many."""


@dataclass(frozen=True, eq=False)
class FastTextModel:
    """Words, the rule of their parts, and a row for each of both."""

    words: tuple[str, ...]
    subwords: SubwordConfig
    matrix: NDArray[np.float32]
    """Of the words, then of the buckets; mapped from the file."""

    @classmethod
    def open(cls, path: str | Path) -> FastTextModel:
        """Map a ``.bin`` file; its vocabulary is read."""
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
                f"{path}: the file is damaged or cut off: fetch it again ({error})"
            ) from error

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return int(self.matrix.shape[1])

    def vectors(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The mean of the rows of each word and its parts, and which words have any."""
        found = np.zeros((len(words), self.dim), np.float32)
        known = np.zeros(len(words), bool)
        for start in range(0, len(words), _AT_ONCE):
            block = words[start : start + _AT_ONCE]
            rows, counts = self.subword_rows(block)
            has_rows = counts > 0
            ends = np.cumsum(counts)
            if len(rows):
                sums = np.add.reduceat(self.matrix[rows], (ends - counts)[has_rows], axis=0)
                found[start : start + len(block)][has_rows] = sums / counts[has_rows, None]
            known[start : start + len(block)] = has_rows
        return found, known

    def subword_rows(self, words: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of words end to end, a known word's own first, and how many each has."""
        own = np.array([self._numbers.get(word, -1) for word in words], np.int64)
        # The end of a sentence is spelled like a word and is none.
        buckets, counts = subword_buckets(
            ["" if word == _END_OF_SENTENCE else word for word in words], self.subwords
        )
        owner = np.repeat(np.arange(len(words)), counts)
        keep = np.array([word != _END_OF_SENTENCE for word in words], bool)[owner]
        buckets, owner = buckets[keep], owner[keep]
        known = np.flatnonzero(own >= 0)
        owners = np.concatenate([known, owner])
        rows = np.concatenate([own[known], buckets + len(self.words)])
        order = np.argsort(owners, kind="stable")
        return rows[order], np.bincount(owners, minlength=len(words))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}


def _read(path: Path, cursor: BinaryReader) -> FastTextModel:
    magic, version = cursor.unpack("2i")
    if magic != MAGIC:
        raise DataError(
            f"{path} is no fastText model: expected a .bin file, unzipped if it was zipped"
        )
    if version not in _VERSIONS:
        raise DataError(f"{path} is of fastText's format {version}: expected 11 or 12")
    (width, _window, _epochs, _min_count, _negatives, _word_ngrams, _loss, kind, buckets,
     shortest, longest, _rate, _sampling) = cursor.unpack("12id")  # fmt: skip
    if version == 11 and kind == _SUPERVISED:  # such models were made without subwords
        longest = 0
    words = list(_words(path, cursor))
    if cursor.unpack("?")[0]:
        raise DataError(f"{path} is a quantised model: take the .bin or .vec that it was made from")
    rows, columns = cursor.unpack("2q")
    if columns != width or rows != len(words) + buckets:
        raise ValueError(f"a matrix of {rows} x {columns} where {len(words)} words have {width}")
    if cursor.offset + rows * columns * 4 > len(cursor.data):
        raise ValueError("the vectors are not all there")
    matrix = np.memmap(path, "<f4", mode="r", offset=cursor.offset, shape=(rows, columns))
    return FastTextModel(tuple(words), SubwordConfig(shortest, longest, buckets), matrix)


def _words(path: Path, cursor: BinaryReader) -> Iterator[str]:
    entries, known, labels, _tokens, pruned = cursor.unpack("3i2q")
    if pruned >= 0:
        raise DataError(f"{path} has only some of its subwords: take the model it was made from")
    if entries != known + labels:
        raise ValueError(f"{entries} entries for {known} words and {labels} labels")
    for number in range(entries):
        word = cursor.read_c_string()
        cursor.unpack("qb")
        if number < known:  # labels of a classifier come last and have no vector
            yield word.decode(errors="replace")
