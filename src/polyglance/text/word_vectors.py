"""Published word vector files: fastText's ``.vec`` and ``.bin``.

A ``.vec`` is text: a line with the number of words and of dimensions, then one line per
word with its vector. A ``.bin`` holds the whole model with its subwords
(`polyglance.text.fasttext`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import atomic_write, read_lines
from polyglance.text.fasttext import FastTextModel

Vectors = NDArray[np.float32]


class WordVectorSource(Protocol):
    """Anything that has word vectors."""

    @property
    def dim(self) -> int:
        """Size of a vector."""

    def vectors(self, words: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """Return a vector for each word, (n, dim), and which words have one; the rest are zero."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, (words, dim)."""

    words: tuple[str, ...]
    matrix: Vectors

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return int(self.matrix.shape[1])

    def vectors(self, words: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """Return a vector for each word, (n, dim), and which words have one; the rest are zero."""
        rows = np.array([self._rows.get(word, -1) for word in words], np.int64)
        known = rows >= 0
        vectors = np.zeros((len(words), self.dim), np.float32)
        vectors[known] = self.matrix[rows[known]]
        return vectors, known

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}


def open_word_vectors(
    path: str | Path, *, words: Collection[str] | None = None
) -> WordVectorSource:
    """Open a ``.vec``, ``.vec.gz`` or ``.bin`` file.

    ``words`` limits what is read of a ``.vec``; a ``.bin`` is memory-mapped.
    """
    path = Path(path).expanduser()
    if path.name.endswith((".vec", ".vec.gz", ".txt", ".txt.gz")):
        return read_vec(path, words=words)
    if path.suffix == ".bin":
        return FastTextModel.open(path)
    raise PolyglanceError(f"{path}: give a word vector file that ends in .vec, .vec.gz or .bin")


def read_vec(path: str | Path, *, words: Collection[str] | None = None) -> WordVectors:
    """Read a ``.vec`` or ``.vec.gz`` file, all of it or only ``words``.

    The first vector of a repeated word counts.
    """
    wanted = None if words is None else frozenset(words)
    lines = read_lines(path, Problems(strict=True))
    header = next(lines, (1, ""))[1].split()
    if len(header) != 2 or not all(part.isdecimal() for part in header) or header[1] == "0":
        raise DataError(f"{path}:1: expected the number of words and of dimensions")
    count, dim = map(int, header)
    rows: dict[str, Vectors] = {}
    number = 1
    for number, line in lines:
        # Published files end lines with a space, and a few of their words contain spaces.
        word, *numbers = line.rstrip(" ").rsplit(" ", dim)
        if word in rows or (wanted is not None and word not in wanted):
            continue
        try:
            row = np.array(numbers, np.float32)
        except ValueError:
            row = np.zeros(0, np.float32)
        if len(row) != dim or not np.isfinite(row).all():
            raise DataError(f"{path}:{number}: expected a word and {dim} numbers")
        rows[word] = row
    if number - 1 != count:
        raise DataError(
            f"{path} declares {count:,} words but has {number - 1:,}: it is truncated, download"
            " it again"
        )
    matrix = np.stack(list(rows.values())) if rows else np.zeros((0, dim), np.float32)
    return WordVectors(tuple(rows), matrix)


def write_vec(path: str | Path, words: Sequence[str], matrix: Vectors) -> None:
    """Write words and vectors, (words, dim), as a ``.vec`` or ``.vec.gz`` file."""
    if len(words) != len(matrix):
        raise ValueError(f"{len(words)} words and {len(matrix)} vectors")
    with atomic_write(path) as out:
        out.write(f"{len(words)} {matrix.shape[1]}\n")
        for word, row in zip(words, matrix, strict=True):
            # nine digits represent every float32 exactly
            out.write(f"{word} {' '.join(f'{value:.9g}' for value in row.tolist())}\n")
