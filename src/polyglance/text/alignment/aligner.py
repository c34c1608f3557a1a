"""Which words of a sentence and its translation mean the same: a word aligner.

It learns from nothing but parallel sentences, in both directions, and makes one
of the two. Models of ever more knowledge take turns, each starting from what the
last one learned of words (`polyglance.text.alignment.models`): IBM's first, to
which all places are the same; fast_align's, which knows that translations lie
along the diagonal; and one that follows the order of words from link to link,
with both directions held to what they agree on.

    found = align([("the dog".split(), "der hund".split()), ...])
    found.links[0]                          # [(0, 0), (1, 1)]
    found.forward.translations("dog")       # {"hund": 0.98, ...}

``AlignerSettings.fast_align()`` is fast_align alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from polyglance.errors import PolyglanceError
from polyglance.text.alignment.links import Link, Symmetry, symmetrise
from polyglance.text.alignment.models import (
    NULL,
    Cells,
    Diagonal,
    Floats,
    Integers,
    Jumps,
    Side,
    Translations,
    transposed,
)

__all__ = ["NULL", "AlignerSettings", "Alignment", "TranslationTable", "align"]

SentencePair = tuple[Sequence[str], Sequence[str]]
"""The words of a sentence and those of its translation."""

_Stage = Literal["words", "diagonal", "jumps"]
_STAGES: tuple[_Stage, ...] = get_args(_Stage)


@dataclass(frozen=True, slots=True)
class AlignerSettings:
    """What the aligner can be told."""

    words: int = 3
    """Iterations of IBM's first model. Without them languages of another order are lost."""
    diagonal: int = 2
    """Iterations of fast_align's model."""
    jumps: int = 5
    """Iterations of the model that follows the order of words."""
    agree: bool = True
    """Whether directions are held to what they agree on, in the last model."""
    null: float = 0.08
    """How often a word is made by no word of the other sentence; fast_align's figure."""
    tension: float = 4.0
    """Where the pull to the diagonal starts; fast_align's figure."""
    learn_tension: bool = True
    alpha: float = 0.05
    """Of the Dirichlet prior on translations, by variational Bayes; 0 is maximum likelihood."""

    def __post_init__(self) -> None:
        counts = self.words, self.diagonal, self.jumps
        if min(counts) < 0 or not sum(counts):
            raise PolyglanceError("an aligner takes one iteration or more")
        if not 0 < self.null < 1 or self.tension < 0 or self.alpha < 0:
            raise PolyglanceError(
                "an aligner's share of null words lies between 0 and 1, "
                "and its tension and alpha are not negative"
            )

    @classmethod
    def fast_align(cls) -> AlignerSettings:
        """fast_align as its authors recommend it: tension learned, a sparse prior."""
        return cls(words=0, diagonal=5, jumps=0, agree=False, alpha=0.01)


@dataclass(frozen=True)
class TranslationTable:
    """t(target word | source word), for words that stand in one pair of sentences at least."""

    sources: tuple[str, ...]
    """The source words by number; number 0 is the null word."""
    targets: tuple[str, ...]
    rows: Integers
    """Of each entry its source word, in ascending order."""
    columns: Integers
    """Of each entry its target word."""
    probabilities: Floats
    tension: float
    """The pull to the diagonal that was learned with it."""
    log_likelihoods: tuple[float, ...]
    """Of the corpus, as each iteration found it."""

    def translations(self, word: str, *, at_least: float = 0.01) -> dict[str, float]:
        """The probable translations of a word, the likeliest first; `NULL` for the null word."""
        row = self._numbers.get(word)
        if row is None:
            return {}
        first, last = np.searchsorted(self.rows, [row, row + 1])
        order = first + np.argsort(-self.probabilities[first:last], kind="stable")
        found = ((self.targets[self.columns[at]], float(self.probabilities[at])) for at in order)
        return {target: value for target, value in found if value >= at_least}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.sources)}


@dataclass(frozen=True)
class Alignment:
    """Links between the words of each pair of sentences, and what was learned about words."""

    links: list[list[Link]]
    forward: TranslationTable
    """From source words to target words."""
    backward: TranslationTable
    forward_links: list[list[Link]] = field(repr=False)
    """At most one a target word, as the forward direction has it."""
    backward_links: list[list[Link]] = field(repr=False)
    """At most one a source word; (source, target) here as well."""

    def symmetrised(self, symmetry: Symmetry) -> list[list[Link]]:
        """Both directions made one, in another way than ``links`` were."""
        return symmetrise(self.forward_links, self.backward_links, symmetry)


def align(
    pairs: Iterable[SentencePair],
    settings: AlignerSettings | None = None,
    *,
    symmetry: Symmetry = "grow-diag-final-and",
) -> Alignment:
    """Align the words of parallel sentences.

    Words are compared as they are spelled: lower-case them before, as
    `ParallelText.plain` does, unless capitals tell words apart. A pair with an
    empty side gets no links.
    """
    settings = settings or AlignerSettings()
    pairs = list(pairs)
    source = Side.of([words for words, _ in pairs])
    target = Side.of([words for _, words in pairs])
    if not len(source.ids) or not len(target.ids):
        raise PolyglanceError("there are no words to align: one of the two sides is empty")
    forward = _Direction(source, target, settings)
    backward = _Direction(target, source, settings)
    mirror = transposed(forward.cells, backward.cells)
    for stage in _STAGES:
        for _ in range(getattr(settings, stage)):
            there, back = forward.expect(stage), backward.expect(stage)
            if stage == "jumps" and settings.agree:
                _agree(there, back, mirror)
            forward.learn(there)
            backward.learn(back)
    there_links = list(forward.links())
    back_links = [sorted((i, j) for j, i in links) for links in backward.links()]
    return Alignment(
        symmetrise(there_links, back_links, symmetry),
        forward.table(), backward.table(), there_links, back_links,
    )  # fmt: skip


def _agree(there: Floats, back: Floats, mirror: tuple[Integers, Integers]) -> None:
    """Make the probability of a link, in place, that both directions have it.

    Alignment by agreement (Liang, Taskar and Klein 2006): what only one
    direction believes is no evidence for either.
    """
    ours, theirs = mirror
    both = there[ours] * back[theirs]
    there[ours] = both
    back[theirs] = both


class _Direction:
    """One direction at work: its cells, what it knows of words, and its models."""

    def __init__(self, source: Side, target: Side, settings: AlignerSettings) -> None:
        self.cells = Cells(source, target)
        self._words = source.words, target.words
        self._settings = settings
        self._translations = Translations(self.cells, settings.alpha)
        self._diagonal = Diagonal(self.cells, settings.null, settings.tension)
        self._jumps = Jumps(self.cells, settings.null)
        self._stage: _Stage = "words"
        self._likelihoods: list[float] = []

    def expect(self, stage: _Stage) -> Floats:
        """The probability of each cell to be a link, by the model of this stage."""
        self._stage = stage
        posterior, likelihood = self._posterior()
        self._likelihoods.append(likelihood)
        return posterior

    def learn(self, posterior: Floats) -> None:
        """Make the expected links as likely as can be."""
        self._translations.learn(posterior)
        if self._stage == "jumps":
            self._jumps.learn()
        elif self._stage == "diagonal" and self._settings.learn_tension:
            self._diagonal.learn(posterior)

    def links(self) -> Iterator[list[Link]]:
        """The likeliest source word of each target word, by pair of sentences."""
        posterior, _ = self._posterior()
        return self.cells.best_links(posterior)

    def table(self) -> TranslationTable:
        """What was learned."""
        learned = self._translations
        return TranslationTable(
            *self._words, learned.rows, learned.columns, learned.probabilities,
            self._diagonal.tension, tuple(self._likelihoods),
        )  # fmt: skip

    def _posterior(self) -> tuple[Floats, float]:
        translation = self._translations.by_cell()
        if self._stage == "jumps":
            return self._jumps.expect(translation)
        return self._diagonal.expect(translation, is_flat=self._stage == "words")
