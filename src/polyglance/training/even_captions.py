"""Captions drawn so that every language counts the same, however many captions it has.

UC2 samples the language of a caption "with even probability 1/|L|" (section 3.3.1):
first a language, then a picture that has it, then one of the captions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.training.distribution import own_share

Indices = NDArray[np.int64]


class EvenCaptions:
    """The captions of a table in some languages, drawn language by language."""

    def __init__(
        self,
        table: CaptionTable,
        *,
        languages: Sequence[str] | None = None,
        smoothing: float = 0.0,
    ) -> None:
        """``languages`` are all of the table, or those named; each needs two pictures at least.

        One is drawn by the number of its captions to the power of ``smoothing``.
        """
        self.table = table
        self.languages = tuple(table.names if languages is None else languages)
        starts, sizes, counts = [], [], []
        for language in self.languages:
            rows = table.of_language(language)
            owners, first, size = np.unique(
                table.owners[rows], return_index=True, return_counts=True
            )
            kept = np.isin(owners, own_share(owners))
            if kept.sum() < 2:
                raise PolyglanceError(
                    f"two pictures with captions in {language} at least are needed to train on:"
                    " choose languages that the corpus has"
                )
            # The captions of one picture in one language lie side by side in the table.
            starts.append(rows[first[kept]])
            sizes.append(size[kept])
            counts.append(int(kept.sum()))
        self._start, self._size = np.concatenate(starts), np.concatenate(sizes)
        self._count = np.array(counts, np.int64)
        shares = np.array([size.sum() for size in sizes], float) ** smoothing
        self._shares = shares / shares.sum()
        self._base = np.cumsum(self._count) - self._count
        self._group = np.full(len(table), -1, np.int64)
        for group, (start, size) in enumerate(zip(self._start, self._size, strict=True)):
            self._group[start : start + size] = group

    @property
    def items(self) -> Indices:
        """The pictures that may be drawn."""
        return np.unique(self.table.owners[self._start])

    def draw(self, count: int, generator: np.random.Generator) -> Indices:
        """So many captions, as rows of the table."""
        language = generator.choice(len(self._count), size=count, p=self._shares)
        return self._one_of(self._base[language] + self._place(language, generator), generator)

    def others(self, rows: Indices, generator: np.random.Generator) -> Indices:
        """For each caption one in the same language, of another picture."""
        group = self._group[rows]
        language = np.searchsorted(self._base, group, side="right") - 1
        base, count = self._base[language], self._count[language]
        away = generator.integers(1, count)
        return self._one_of(base + (group - base + away) % count, generator)

    def _place(self, language: Indices, generator: np.random.Generator) -> Indices:
        return generator.integers(self._count[language])

    def _one_of(self, group: Indices, generator: np.random.Generator) -> Indices:
        rows: Indices = self._start[group] + generator.integers(self._size[group])
        return rows
