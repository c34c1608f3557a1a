"""The models of the word aligner, on flat arrays over all cells of a corpus.

A cell is a target word with a source word, or with the null word, that may have
made it. `Translations` knows how likely a source word is to make a target word, t;
the models know where a link may lie, and give each cell its probability:

- `Diagonal` is fast_align (Dyer, Chahuneau and Smith 2013), IBM's second model
  with one parameter. For the j-th of m target words and n source words

      p(a_j = 0) = p0,   p(a_j = i) = (1 - p0) exp(-tension |i/n - j/m|) / Z_j.

  Without tension it is IBM's first.
- `Jumps` is the hidden Markov model (Vogel, Ney and Tillmann 1996): how far a
  link lies from the one before it. Two dogs in one sentence are told apart by
  their neighbours, where the diagonal only guesses.

No loop runs over sentences: the second model goes word by word through all
sentences of one length at once.
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
"""How the null word is spelled; its number is 0."""

TENSIONS = (0.1, 14.0)
"""Between hardly a pull to the diagonal and nothing beside it, as fast_align has them."""

FARTHEST = 10
"""Longer jumps are all the same."""

AT_ONCE = 4096
"""Sentences that go through the second model together."""


@dataclass(frozen=True)
class Side:
    """The sentences of one language, end to end, as numbers of words."""

    words: tuple[str, ...]
    ids: Integers
    lengths: Integers

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]]) -> Side:
        """Number the words of sentences in the order in which they come."""
        numbers: dict[str, int] = {NULL: 0}
        ids = [numbers.setdefault(word, len(numbers)) for word in chain.from_iterable(sentences)]
        lengths = [len(sentence) for sentence in sentences]
        return cls(tuple(numbers), np.array(ids, np.int64), np.array(lengths, np.int64))


class Grid:
    """The cells of rectangles, end to end: a row a target word, a column a source word.

    Column 0 of every row is the null word's, so that no row is empty.
    """

    def __init__(self, source_lengths: Integers, target_lengths: Integers) -> None:
        self.rectangle = np.repeat(np.arange(len(target_lengths)), target_lengths)
        """Of each row, which rectangle it is in."""
        self.row = ragged_arange(np.zeros_like(target_lengths), target_lengths)
        """Of each row, its number in the rectangle, from 0."""
        self.width = source_lengths[self.rectangle] + 1
        self.start = np.cumsum(self.width) - self.width
        """Of each row, its first cell."""
        self.column = ragged_arange(np.zeros_like(self.width), self.width)
        """Of each cell, its place in the row: 0 for the null word."""
        size = target_lengths * (source_lengths + 1)
        self.corner = np.cumsum(size) - size
        """Of each rectangle, its first cell."""

    def by_cell(self, rows: NDArray[_Number]) -> NDArray[_Number]:
        """What holds for rows, for each of their cells."""
        return np.repeat(rows, self.width)

    def sums(self, cells: Floats) -> Floats:
        """The sum of each row."""
        found: Floats = np.add.reduceat(cells, self.start)
        return found


class Cells(Grid):
    """The cells of a corpus: a rectangle a pair of sentences."""

    def __init__(self, source: Side, target: Side) -> None:
        super().__init__(source.lengths, target.lengths)
        self.source_lengths, self.target_lengths = source.lengths, target.lengths
        before = np.cumsum(source.lengths) - source.lengths
        places = self.by_cell(before[self.rectangle]) + self.column - 1
        words = np.where(self.column == 0, 0, source.ids.take(places, mode="clip"))
        keys = words * len(target.words) + self.by_cell(target.ids)
        self.entries, self.entry = np.unique(keys, return_inverse=True)
        """The pairs of words that stand in a cell; and which of them stands in each."""
        self.target_words = len(target.words)

    def best_links(self, scores: Floats) -> Iterator[list[Link]]:
        """For each pair of sentences the best cell of each row, unless it is the null word's."""
        highest = self.by_cell(np.maximum.reduceat(scores, self.start))
        candidates = np.flatnonzero(scores == highest)
        rows = np.searchsorted(self.start, candidates, side="right")
        firsts = candidates[np.diff(rows, prepend=0) > 0]  # of equals
        best = self.column[firsts]
        linked = np.flatnonzero(best)
        links = list(zip((best[linked] - 1).tolist(), self.row[linked].tolist(), strict=True))
        ends = np.searchsorted(
            self.rectangle[linked], np.arange(len(self.target_lengths)), side="right"
        )
        for start, end in pairwise([0, *ends.tolist()]):
            yield sorted(links[start:end])


def transposed(cells: Cells, others: Cells) -> tuple[Integers, Integers]:
    """The cells that are no null word's, and the same ones of the other direction."""
    inner = np.flatnonzero(cells.column)
    pair = cells.by_cell(cells.rectangle)[inner]
    row = cells.column[inner] - 1
    column = cells.by_cell(cells.row)[inner] + 1
    return inner, others.corner[pair] + row * (cells.target_lengths[pair] + 1) + column


class Translations:
    """t(target word | source word), for the pairs of words that stand in a cell."""

    def __init__(self, cells: Cells, alpha: float) -> None:
        self._cells, self._alpha = cells, alpha
        self.rows, self.columns = np.divmod(cells.entries, cells.target_words)
        self._starts = np.flatnonzero(np.diff(self.rows, prepend=-1))
        self.probabilities: Floats = np.full(len(cells.entries), 1 / (cells.target_words - 1))

    def by_cell(self) -> Floats:
        """t of each cell."""
        return self.probabilities[self._cells.entry]

    def learn(self, posterior: Floats) -> None:
        """t from expected counts: shares, or under a Dirichlet prior exp of the mean logarithm."""
        found = np.bincount(self._cells.entry, posterior, len(self.rows))
        counts = found.astype(np.float64) + self._alpha
        widths = np.diff(self._starts, append=len(counts))
        totals: Floats = np.add.reduceat(counts, self._starts)
        if self._alpha:
            shares = np.exp(digamma(counts) - np.repeat(digamma(totals), widths))
        else:
            shares = np.divide(counts, np.repeat(totals, widths), where=counts > 0, out=counts)
        # A word that agreement leaves no link must not leave its sentence impossible.
        self.probabilities = np.maximum(shares, 1e-100)


class Diagonal:
    """fast_align's model: the nearer the diagonal, the likelier."""

    def __init__(self, cells: Cells, null: float, tension: float) -> None:
        self._cells, self._null, self.tension = cells, null, tension
        lengths = np.stack([cells.source_lengths, cells.target_lengths], axis=1)
        shapes, shape = np.unique(lengths, axis=0, return_inverse=True)
        grid = self._grid = Grid(shapes[:, 0], shapes[:, 1])
        corner = grid.corner[shape.reshape(-1)] - cells.corner
        self._place = cells.by_cell(corner[cells.rectangle]) + np.arange(len(cells.column))
        """Of each cell, where its shape's table has it: priors are the same for each shape."""
        n, m = shapes[grid.rectangle].T
        j, i = grid.by_cell((grid.row + 1) / m), grid.column / grid.by_cell(np.maximum(n, 1))
        self._is_null = grid.column == 0
        self._feature = np.where(self._is_null, 0.0, -np.abs(i - j))

    def expect(self, translation: Floats, *, is_flat: bool) -> tuple[Floats, float]:
        """The probability of each cell to be a link, and the log likelihood of the corpus.

        ``is_flat`` leaves the diagonal out: IBM's first model.
        """
        shares = self._shares(0.0 if is_flat else self.tension)
        prior = np.where(self._is_null, self._null, (1 - self._null) * shares)
        joint = prior[self._place] * translation
        total = self._cells.sums(joint)
        return joint / self._cells.by_cell(total), float(np.log(total).sum())

    def learn(self, posterior: Floats) -> None:
        """Find the tension that makes the expected links likeliest.

        Their log likelihood is concave in it: the slope is how far from the
        diagonal they lie less how far the model says, the curvature the model's
        variance, so that Newton's method finds the one maximum.
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
            if curvature <= 0:  # one word a sentence: all tensions are the same
                break
            before = self.tension
            step = (observed - weight @ mean) / curvature
            self.tension = float(np.clip(before + step, *TENSIONS))
            if abs(self.tension - before) < 1e-12:
                break

    def _shares(self, tension: float) -> Floats:
        """exp(-tension |i/n - j/m|) / Z_j; nothing for the null word."""
        weight = np.where(self._is_null, 0.0, np.exp(tension * self._feature))
        total = self._grid.sums(weight)
        shares: Floats = weight / self._grid.by_cell(np.where(total > 0, total, 1.0))
        return shares


class Jumps:
    """The hidden Markov model: where the next link lies, seen from the last one.

    The state is the place of the last link, 0 before the first. A target word
    that the null word makes leaves it as it is, so that after the j-th word

        s_j = (1 - p0) (s_j-1 J) t_j + p0 t_j(null) s_j-1.
    """

    def __init__(self, cells: Cells, null: float) -> None:
        self._cells, self._null = cells, null
        distance = np.arange(-FARTHEST, FARTHEST + 1)
        self.jumps: Floats = np.exp2(-np.abs(distance - 1.0))
        """How likely each jump is, from -FARTHEST on; next to the last link to begin with."""
        self._expected = np.zeros_like(self.jumps)
        self._groups = list(self._of_one_length())

    def expect(self, translation: Floats) -> tuple[Floats, float]:
        """The probability of each cell to be a link, and the log likelihood of the corpus."""
        posterior = np.zeros_like(translation)
        self._expected = np.zeros_like(self.jumps)
        likelihood = 0.0
        for pairs in self._groups:
            likelihood += self._forward_backward(pairs, translation, posterior)
        return posterior, likelihood

    def learn(self) -> None:
        """Take the jumps that were expected, each once more than it was."""
        self.jumps = (self._expected + 1) / (self._expected + 1).sum()

    def transitions(self, length: int) -> tuple[Floats, Integers]:
        """J, from each place to each in a source of this length, and the jumps that it takes."""
        places = np.arange(length + 1)
        jump = np.clip(places - places[:, None], -FARTHEST, FARTHEST) + FARTHEST
        weight = np.where(places > 0, self.jumps[jump], 0.0)
        return weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300), jump

    def _of_one_length(self) -> Iterator[Integers]:
        """Pairs whose sources are of one length, those with the longest targets first."""
        sources, targets = self._cells.source_lengths, self._cells.target_lengths
        order = np.lexsort((-targets, sources))
        changes = np.flatnonzero(np.diff(sources[order])) + 1
        for group in np.split(order, changes):
            yield from np.split(group, np.arange(AT_ONCE, len(group), AT_ONCE))

    def _forward_backward(self, pairs: Integers, translation: Floats, posterior: Floats) -> float:
        """Fill in the posterior of these pairs' cells and count their jumps."""
        width = int(self._cells.source_lengths[pairs[0]]) + 1
        matrix, jump = self.transitions(width - 1)
        targets = self._cells.target_lengths[pairs]
        first = self._cells.corner[pairs][:, None] + np.arange(width)
        state = np.zeros((len(pairs), width))
        state[:, 0] = 1
        steps: list[tuple[Integers, Floats, Floats]] = []
        likelihood = 0.0
        for j in range(int(targets[0])):
            going = int(np.searchsorted(-targets, -j))  # those with more than j words
            cells, state = first[:going] + j * width, state[:going]
            made = translation[cells]
            after = (1 - self._null) * (state @ matrix) * made + self._null * made[:, :1] * state
            scale = after.sum(axis=1, keepdims=True)
            steps.append((cells, state, made / scale))
            state = after / scale
            likelihood += float(np.log(scale).sum())
        later = np.ones((len(pairs), width))
        moves = np.zeros((width, width))
        for cells, state, made in reversed(steps):
            rest = later[: len(cells)]
            linked = (1 - self._null) * made * rest
            linked[:, 0] = 0
            skipped = self._null * made[:, :1] * rest
            found = (state @ matrix) * linked
            found[:, 0] = (state * skipped).sum(axis=1)
            posterior[cells] = found
            moves += state.T @ linked
            later[: len(cells)] = linked @ matrix.T + skipped
        self._expected += np.bincount(
            jump.ravel(), (moves * matrix).ravel(), minlength=len(self._expected)
        )
        return likelihood


def digamma(x: Floats) -> Floats:
    """The derivative of log gamma, for positive numbers: its series, after eight steps up."""
    steps = np.sum([1 / (x + k) for k in range(8)], axis=0)
    x = x + 8
    square = 1 / (x * x)
    series = np.zeros_like(x)
    for coefficient in (1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = square * (coefficient + series)
    found: Floats = np.log(x) - 0.5 / x - series - steps
    return found
