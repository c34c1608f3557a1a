"""The models of the word aligner, on flat arrays over all cells of a corpus.

A cell is a target word together with a source word of the same pair, or with the null
word. `TranslationModel` holds t(target word | source word); the other two are alignment
models, which give each cell its posterior probability of being a link:

- `DiagonalModel` is fast_align (Dyer, Chahuneau and Smith 2013), IBM model 2 with one
  parameter. For the j-th of m target words and n source words

      p(a_j = 0) = p0,   p(a_j = i) = (1 - p0) exp(-tension |i/n - j/m|) / Z_j.

  With a tension of 0 it is IBM model 1.
- `HmmModel` is the hidden Markov model (Vogel, Ney and Tillmann 1996): the prior depends
  on the distance from the previous link. It tells two occurrences of a word in one
  sentence apart by their neighbours, where the diagonal can only guess.

No Python loop runs over sentences: the HMM goes word by word through all sentences of
one source length at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from polyglance.text.alignment.links import Link
from polyglance.utils.ragged import ragged_arange

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)

NULL = ""
"""The null word; its id is 0."""

TENSION_RANGE = (0.1, 14.0)
"""Bounds of the tension, as in fast_align."""

MAX_JUMP = 10
"""Longer jumps share one probability."""

BATCH_SIZE = 4096
"""Sentence pairs that go through the HMM together."""


@dataclass(frozen=True)
class EncodedSentences:
    """The sentences of one language as word ids, concatenated."""

    words: tuple[str, ...]
    ids: Integers
    lengths: Integers

    @classmethod
    def from_words(cls, sentences: Sequence[Sequence[str]]) -> EncodedSentences:
        """Assign ids to words in order of first occurrence."""
        vocabulary: dict[str, int] = {NULL: 0}
        ids = [
            vocabulary.setdefault(word, len(vocabulary)) for word in chain.from_iterable(sentences)
        ]
        lengths = [len(sentence) for sentence in sentences]
        return cls(tuple(vocabulary), np.array(ids, np.int64), np.array(lengths, np.int64))


class Grid:
    """The cells of rectangles, concatenated; rows are target words, columns source words.

    Column 0 of every row is the null word, so that no row is empty.
    """

    def __init__(self, source_lengths: Integers, target_lengths: Integers) -> None:
        self.rectangle = np.repeat(np.arange(len(target_lengths)), target_lengths)
        """The rectangle of each row."""
        self.row = ragged_arange(np.zeros_like(target_lengths), target_lengths)
        """The index of each row in its rectangle."""
        self.width = source_lengths[self.rectangle] + 1
        self.start = np.cumsum(self.width) - self.width
        """The first cell of each row."""
        self.column = ragged_arange(np.zeros_like(self.width), self.width)
        """The column of each cell; 0 is the null word."""
        size = target_lengths * (source_lengths + 1)
        self.corner = np.cumsum(size) - size
        """The first cell of each rectangle."""

    def by_cell(self, rows: NDArray[_Number]) -> NDArray[_Number]:
        """Repeat a value per row for each of its cells."""
        return np.repeat(rows, self.width)

    def sums(self, cells: Floats) -> Floats:
        """Return the sum of each row."""
        totals: Floats = np.add.reduceat(cells, self.start)
        return totals


class Cells(Grid):
    """The cells of a corpus, one rectangle per sentence pair."""

    def __init__(self, source: EncodedSentences, target: EncodedSentences) -> None:
        super().__init__(source.lengths, target.lengths)
        self.source_lengths, self.target_lengths = source.lengths, target.lengths
        before = np.cumsum(source.lengths) - source.lengths
        places = self.by_cell(before[self.rectangle]) + self.column - 1
        words = np.where(self.column == 0, 0, source.ids.take(places, mode="clip"))
        keys = words * len(target.words) + self.by_cell(target.ids)
        self.entries, self.entry = np.unique(keys, return_inverse=True)
        """The distinct word pairs of all cells, and the index of each cell's pair among them."""
        self.target_words = len(target.words)

    def best_links(self, scores: Floats) -> Iterator[list[Link]]:
        """Yield, for each sentence pair, the best cell of each row that is not the null word."""
        highest = self.by_cell(np.maximum.reduceat(scores, self.start))
        candidates = np.flatnonzero(scores == highest)
        rows = np.searchsorted(self.start, candidates, side="right")
        first_of_ties = candidates[np.diff(rows, prepend=0) > 0]
        best = self.column[first_of_ties]
        linked = np.flatnonzero(best)
        links = list(zip((best[linked] - 1).tolist(), self.row[linked].tolist(), strict=True))
        ends = np.searchsorted(
            self.rectangle[linked], np.arange(len(self.target_lengths)), side="right"
        )
        for start, end in pairwise([0, *ends.tolist()]):
            yield sorted(links[start:end])


def transpose_cells(cells: Cells, others: Cells) -> tuple[Integers, Integers]:
    """Return the cells outside the null column, and the same cells of the other direction."""
    inner = np.flatnonzero(cells.column)
    pair = cells.by_cell(cells.rectangle)[inner]
    row = cells.column[inner] - 1
    column = cells.by_cell(cells.row)[inner] + 1
    return inner, others.corner[pair] + row * (cells.target_lengths[pair] + 1) + column


class TranslationModel:
    """t(target word | source word), for the word pairs that occur in a cell."""

    def __init__(self, cells: Cells, alpha: float) -> None:
        self._cells, self._alpha = cells, alpha
        self.rows, self.columns = np.divmod(cells.entries, cells.target_words)
        self._starts = np.flatnonzero(np.diff(self.rows, prepend=-1))
        self.probabilities: Floats = np.full(len(cells.entries), 1 / (cells.target_words - 1))

    def by_cell(self) -> Floats:
        """Return t of each cell."""
        return self.probabilities[self._cells.entry]

    def m_step(self, posterior: Floats) -> None:
        """Fit t to the expected counts, by relative frequency or under a Dirichlet prior."""
        expected = np.bincount(self._cells.entry, posterior, len(self.rows))
        counts = expected.astype(np.float64) + self._alpha
        widths = np.diff(self._starts, append=len(counts))
        totals: Floats = np.add.reduceat(counts, self._starts)
        if self._alpha:
            shares = np.exp(digamma(counts) - np.repeat(digamma(totals), widths))
        else:
            shares = np.divide(counts, np.repeat(totals, widths), where=counts > 0, out=counts)
        # Agreement may leave a word without links; its sentence must stay possible.
        self.probabilities = np.maximum(shares, 1e-100)


class DiagonalModel:
    """fast_align's model: cells near the diagonal are more probable."""

    def __init__(self, cells: Cells, null: float, tension: float) -> None:
        self._cells, self._null, self.tension = cells, null, tension
        lengths = np.stack([cells.source_lengths, cells.target_lengths], axis=1)
        shapes, shape = np.unique(lengths, axis=0, return_inverse=True)
        grid = self._grid = Grid(shapes[:, 0], shapes[:, 1])
        corner = grid.corner[shape.reshape(-1)] - cells.corner
        self._place = cells.by_cell(corner[cells.rectangle]) + np.arange(len(cells.column))
        """The index of each cell in the prior of its shape, which pairs of equal lengths share."""
        n, m = shapes[grid.rectangle].T
        j, i = grid.by_cell((grid.row + 1) / m), grid.column / grid.by_cell(np.maximum(n, 1))
        self._is_null = grid.column == 0
        self._feature = np.where(self._is_null, 0.0, -np.abs(i - j))

    def e_step(self, translation: Floats, *, uniform: bool) -> tuple[Floats, float]:
        """Return the posterior of each cell, and the log likelihood of the corpus.

        ``uniform`` ignores the diagonal: IBM model 1.
        """
        shares = self._shares(0.0 if uniform else self.tension)
        prior = np.where(self._is_null, self._null, (1 - self._null) * shares)
        joint = prior[self._place] * translation
        total = self._cells.sums(joint)
        return joint / self._cells.by_cell(total), float(np.log(total).sum())

    def m_step(self, posterior: Floats) -> None:
        """Fit the tension to the expected links by Newton's method.

        Their log likelihood is concave in the tension: its gradient is the observed
        minus the expected feature, its curvature the feature's variance.
        """
        expected: Floats = np.where(
            self._is_null, 0.0, np.bincount(self._place, posterior, len(self._feature))
        )
        weight = self._grid.sums(expected)
        observed = expected @ self._feature
        for _ in range(50):
            shares = self._shares(self.tension)
            mean = self._grid.sums(shares * self._feature)
            variance = self._grid.sums(shares * self._feature**2) - mean**2
            curvature = weight @ variance
            if curvature <= 0:  # one word per sentence: the tension has no effect
                break
            before = self.tension
            step = (observed - weight @ mean) / curvature
            self.tension = float(np.clip(before + step, *TENSION_RANGE))
            if abs(self.tension - before) < 1e-12:
                break

    def _shares(self, tension: float) -> Floats:
        """Return exp(-tension |i/n - j/m|) / Z_j, and 0 for the null word."""
        weight = np.where(self._is_null, 0.0, np.exp(tension * self._feature))
        total = self._grid.sums(weight)
        shares: Floats = weight / self._grid.by_cell(np.where(total > 0, total, 1.0))
        return shares


class HmmModel:
    """The hidden Markov model: the prior of a link depends on the previous link.

    The state is the source position of the last link, 0 before the first. A target word
    that is aligned to the null word keeps the state, so that after the j-th word

        s_j = (1 - p0) (s_j-1 J) t_j + p0 t_j(null) s_j-1.
    """

    def __init__(self, cells: Cells, null: float) -> None:
        self._cells, self._null = cells, null
        distance = np.arange(-MAX_JUMP, MAX_JUMP + 1)
        self.jumps: Floats = np.exp2(-np.abs(distance - 1.0))
        """Weight of each jump from -MAX_JUMP on, initially largest for the next word."""
        self._expected = np.zeros_like(self.jumps)
        self._groups = list(self._group_by_source_length())

    def e_step(self, translation: Floats) -> tuple[Floats, float]:
        """Return the posterior of each cell, and the log likelihood of the corpus."""
        posterior = np.zeros_like(translation)
        self._expected = np.zeros_like(self.jumps)
        likelihood = 0.0
        for pairs in self._groups:
            likelihood += self._forward_backward(pairs, translation, posterior)
        return posterior, likelihood

    def m_step(self) -> None:
        """Fit the jump distribution to the expected jumps, with add-one smoothing."""
        self.jumps = (self._expected + 1) / (self._expected + 1).sum()

    def transitions(self, length: int) -> tuple[Floats, Integers]:
        """Return J, (length + 1, length + 1), for a source length, and the jump of each entry."""
        places = np.arange(length + 1)
        jump = np.clip(places - places[:, None], -MAX_JUMP, MAX_JUMP) + MAX_JUMP
        weight = np.where(places > 0, self.jumps[jump], 0.0)
        return weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300), jump

    def _group_by_source_length(self) -> Iterator[Integers]:
        """Yield batches of pairs with the same source length, longest targets first."""
        sources, targets = self._cells.source_lengths, self._cells.target_lengths
        order = np.lexsort((-targets, sources))
        changes = np.flatnonzero(np.diff(sources[order])) + 1
        for group in np.split(order, changes):
            yield from np.split(group, np.arange(BATCH_SIZE, len(group), BATCH_SIZE))

    def _forward_backward(self, pairs: Integers, translation: Floats, posterior: Floats) -> float:
        """Fill in the posterior of these pairs' cells, count jumps, return the log likelihood."""
        width = int(self._cells.source_lengths[pairs[0]]) + 1
        matrix, jump = self.transitions(width - 1)
        targets = self._cells.target_lengths[pairs]
        first = self._cells.corner[pairs][:, None] + np.arange(width)
        state = np.zeros((len(pairs), width))
        state[:, 0] = 1
        steps: list[tuple[Integers, Floats, Floats]] = []
        likelihood = 0.0
        for j in range(int(targets[0])):
            active = int(np.searchsorted(-targets, -j))  # pairs with more than j target words
            cells, state = first[:active] + j * width, state[:active]
            emission = translation[cells]
            moved = (1 - self._null) * (state @ matrix) * emission
            after = moved + self._null * emission[:, :1] * state
            scale = after.sum(axis=1, keepdims=True)
            steps.append((cells, state, emission / scale))
            state = after / scale
            likelihood += float(np.log(scale).sum())
        beta = np.ones((len(pairs), width))
        moves = np.zeros((width, width))
        for cells, state, emission in reversed(steps):
            rest = beta[: len(cells)]
            linked = (1 - self._null) * emission * rest
            linked[:, 0] = 0
            skipped = self._null * emission[:, :1] * rest
            gamma = (state @ matrix) * linked
            gamma[:, 0] = (state * skipped).sum(axis=1)
            posterior[cells] = gamma
            moves += state.T @ linked
            beta[: len(cells)] = linked @ matrix.T + skipped
        self._expected += np.bincount(
            jump.ravel(), (moves * matrix).ravel(), minlength=len(self._expected)
        )
        return likelihood


def digamma(x: Floats) -> Floats:
    """Return the derivative of log gamma for x > 0: its asymptotic series at x + 8."""
    steps = np.sum([1 / (x + k) for k in range(8)], axis=0)
    x = x + 8
    square = 1 / (x * x)
    series = np.zeros_like(x)
    for coefficient in (1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = square * (coefficient + series)
    value: Floats = np.log(x) - 0.5 / x - series - steps
    return value
