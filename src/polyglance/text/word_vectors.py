"""Word vectors in the files that the field publishes: fastText's ``.vec`` and ``.bin``.

A ``.vec`` is text: a line with the number of words and of dimensions, then a
word and its numbers a line. A ``.bin`` holds the model whole, with its subwords
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
    """Whatever has vectors of words."""

    @property
    def dim(self) -> int:
        """Numbers in a vector."""

    def vectors(self, words: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """A vector for each word, (n, width), and which words have one; the others' are zero."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and a vector each."""

    words: tuple[str, ...]
    matrix: Vectors

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return int(self.matrix.shape[1])

    def vectors(self, words: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """A vector for each word, (n, width), and which words have one; the others' are zero."""
        rows = np.array([self._rows.get(word, -1) for word in words], np.int64)
        known = rows >= 0
        found = np.zeros((len(words), self.dim), np.float32)
        found[known] = self.matrix[rows[known]]
        return found, known

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}


def open_word_vectors(
    path: str | Path, *, words: Collection[str] | None = None
) -> WordVectorSource:
    """Open a ``.vec``, ``.vec.gz`` or ``.bin`` file.

    Of a ``.vec`` only ``words`` are read, where they are given; a ``.bin`` is
    mapped, not read.
    """
    path = Path(path).expanduser()
    if path.name.endswith((".vec", ".vec.gz", ".txt", ".txt.gz")):
        return read_vec(path, words=words)
    if path.suffix == ".bin":
        return FastTextModel.open(path)
    raise PolyglanceError(f"{path}: word vectors are files that end in .vec, .vec.gz or .bin")


def read_vec(path: str | Path, *, words: Collection[str] | None = None) -> WordVectors:
    """Read a ``.vec`` or ``.vec.gz`` file, whole or only ``words``; of a word that comes
    twice the first is taken."""
    wanted = None if words is None else frozenset(words)
    lines = read_lines(path, Problems(strict=True))
    header = next(lines, (1, ""))[1].split()
    if len(header) != 2 or not all(part.isdecimal() for part in header) or header[1] == "0":
        raise DataError(f"{path}:1: expected the number of words and the width of their vectors")
    count, width = map(int, header)
    rows: dict[str, Vectors] = {}
    number = 1
    for number, line in lines:
        # Published files end lines with a space, and a few of their words have spaces inside.
        word, *numbers = line.rstrip(" ").rsplit(" ", width)
        if word in rows or (wanted is not None and word not in wanted):
            continue
        try:
            row = np.array(numbers, np.float32)
        except ValueError:
            row = np.zeros(0, np.float32)
        if len(row) != width or not np.isfinite(row).all():
            raise DataError(f"{path}:{number}: expected a word and {width} numbers")
        rows[word] = row
    if number - 1 != count:
        raise DataError(
            f"{path} promises {count:,} words and has {number - 1:,}: fetch it again, it is cut off"
        )
    matrix = np.stack(list(rows.values())) if rows else np.zeros((0, width), np.float32)
    return WordVectors(tuple(rows), matrix)


def write_vec(path: str | Path, words: Sequence[str], matrix: Vectors) -> None:
    """Write words and vectors as a ``.vec`` file, or zipped as ``.vec.gz``."""
    if len(words) != len(matrix):
        raise ValueError(f"{len(words)} words and {len(matrix)} vectors")
    with atomic_write(path) as out:
        out.write(f"{len(words)} {matrix.shape[1]}\n")
        for word, row in zip(words, matrix, strict=True):
            # nine digits bring every float32 back as it was
            out.write(f"{word} {' '.join(f'{value:.9g}' for value in row.tolist())}\n")
