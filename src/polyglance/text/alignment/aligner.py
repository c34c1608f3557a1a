"""A word aligner, trained by EM on nothing but the parallel sentences themselves.

Both directions are aligned and then symmetrised. Three models run one after the other,
each starting from the translation probabilities of the last
(`polyglance.text.alignment.models`): IBM model 1; fast_align's IBM model 2; and an HMM
whose two directions are trained to agree.

    alignment = align([("the dog".split(), "der hund".split()), ...])
    alignment.links[0]                          # [(0, 0), (1, 1)]
    alignment.forward.translations("dog")       # {"hund": 0.98, ...}

``AlignerSettings.fast_align()`` is fast_align alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from polyglance.errors import PolyglanceError
from polyglance.text.alignment.links import Link, Symmetry, symmetrise
from polyglance.text.alignment.models import (
    NULL,
    Cells,
    DiagonalModel,
    EncodedSentences,
    Floats,
    HmmModel,
    Integers,
    TranslationModel,
    transpose_cells,
)

__all__ = ["NULL", "AlignerSettings", "Alignment", "TranslationTable", "align"]

SentencePair = tuple[Sequence[str], Sequence[str]]
"""The words of a sentence and those of its translation."""

_Stage = Literal["ibm1", "fast_align", "hmm"]


@dataclass(frozen=True, slots=True)
class AlignerSettings:
    """Hyper-parameters of the aligner."""

    ibm1_iterations: int = 3
    """EM iterations of IBM model 1. Without them, pairs with a different word order fail."""
    fast_align_iterations: int = 2
    """EM iterations of fast_align's model."""
    hmm_iterations: int = 5
    """EM iterations of the HMM."""
    by_agreement: bool = True
    """Train the HMM's two directions to agree (Liang et al. 2006)."""
    null_probability: float = 0.08
    """Prior probability that a word is aligned to the null word; fast_align's default."""
    tension: float = 4.0
    """Initial preference for the diagonal; fast_align's default."""
    learn_tension: bool = True
    alpha: float = 0.05
    """Dirichlet prior on translations, for variational Bayes; 0 is maximum likelihood."""

    def __post_init__(self) -> None:
        counts = [count for _, count in self.stages()]
        if min(counts) < 0 or not sum(counts):
            raise PolyglanceError("an aligner needs at least one iteration")
        if not 0 < self.null_probability < 1 or self.tension < 0 or self.alpha < 0:
            raise PolyglanceError(
                "an aligner's null_probability must lie between 0 and 1, "
                "and its tension and alpha must not be negative"
            )

    def stages(self) -> tuple[tuple[_Stage, int], ...]:
        """Return the models in training order, each with its number of iterations."""
        return (
            ("ibm1", self.ibm1_iterations),
            ("fast_align", self.fast_align_iterations),
            ("hmm", self.hmm_iterations),
        )

    @classmethod
    def fast_align(cls) -> AlignerSettings:
        """Return fast_align's settings as its authors recommend: learned tension, sparse prior."""
        return cls(
            ibm1_iterations=0,
            fast_align_iterations=5,
            hmm_iterations=0,
            by_agreement=False,
            alpha=0.01,
        )


@dataclass(frozen=True)
class TranslationTable:
    """t(target word | source word), for words that occur together in a sentence pair."""

    sources: tuple[str, ...]
    """The source words by id; id 0 is the null word."""
    targets: tuple[str, ...]
    rows: Integers
    """The source word id of each entry, in ascending order."""
    columns: Integers
    """The target word id of each entry."""
    probabilities: Floats
    tension: float
    """The diagonal preference that was learned with it."""
    log_likelihoods: tuple[float, ...]
    """Log likelihood of the corpus in each iteration."""

    def translations(self, word: str, *, min_probability: float = 0.01) -> dict[str, float]:
        """Return a word's translations by probability, highest first; `NULL` is the null word."""
        row = self._ids.get(word)
        if row is None:
            return {}
        first, last = np.searchsorted(self.rows, [row, row + 1])
        order = first + np.argsort(-self.probabilities[first:last], kind="stable")
        entries = ((self.targets[self.columns[at]], float(self.probabilities[at])) for at in order)
        return {target: value for target, value in entries if value >= min_probability}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.sources)}


@dataclass(frozen=True)
class Alignment:
    """The links of each sentence pair, and the translation tables of both directions."""

    links: list[list[Link]]
    forward: TranslationTable
    """From source words to target words."""
    backward: TranslationTable
    forward_links: list[list[Link]] = field(repr=False)
    """The forward direction's links, at most one per target word."""
    backward_links: list[list[Link]] = field(repr=False)
    """The backward direction's links, at most one per source word; also (source, target)."""

    def symmetrise(self, symmetry: Symmetry) -> list[list[Link]]:
        """Return the links of both directions combined by another heuristic than ``links``."""
        return symmetrise(self.forward_links, self.backward_links, symmetry)


def align(
    pairs: Iterable[SentencePair],
    settings: AlignerSettings | None = None,
    *,
    symmetry: Symmetry = "grow-diag-final-and",
) -> Alignment:
    """Align the words of parallel sentences.

    Args:
        pairs: The words of each sentence and of its translation. Spelling is compared
            as it is: lower-case words first, as `ParallelText.lowercased` does, unless
            case is meaningful. A pair with an empty side gets no links.
        settings: Iterations and priors.
        symmetry: How the two directions are combined.

    Returns:
        The links of every pair and the translation probabilities.
    """
    settings = settings or AlignerSettings()
    pairs = list(pairs)
    source = EncodedSentences.from_words([words for words, _ in pairs])
    target = EncodedSentences.from_words([words for _, words in pairs])
    if not len(source.ids) or not len(target.ids):
        raise PolyglanceError("there are no words to align: one of the two sides is empty")
    forward = _Direction(source, target, settings)
    backward = _Direction(target, source, settings)
    mirror = transpose_cells(forward.cells, backward.cells)
    for stage, iterations in settings.stages():
        for _ in range(iterations):
            forward_posterior = forward.e_step(stage)
            backward_posterior = backward.e_step(stage)
            if stage == "hmm" and settings.by_agreement:
                _agree(forward_posterior, backward_posterior, mirror)
            forward.m_step(forward_posterior)
            backward.m_step(backward_posterior)
    forward_links = list(forward.links())
    backward_links = [sorted((i, j) for j, i in links) for links in backward.links()]
    return Alignment(
        symmetrise(forward_links, backward_links, symmetry),
        forward.table(), backward.table(), forward_links, backward_links,
    )  # fmt: skip


def _agree(forward: Floats, backward: Floats, mirror: tuple[Integers, Integers]) -> None:
    """Replace both directions' posteriors, in place, by their product.

    Alignment by agreement (Liang, Taskar and Klein 2006): a link that only one
    direction believes in is no evidence for either.
    """
    cells, mirrored = mirror
    product = forward[cells] * backward[mirrored]
    forward[cells] = product
    backward[mirrored] = product


class _Direction:
    """One direction in training: its cells, translation probabilities and models."""

    def __init__(
        self, source: EncodedSentences, target: EncodedSentences, settings: AlignerSettings
    ) -> None:
        self.cells = Cells(source, target)
        self._words = source.words, target.words
        self._settings = settings
        self._translations = TranslationModel(self.cells, settings.alpha)
        self._diagonal = DiagonalModel(self.cells, settings.null_probability, settings.tension)
        self._hmm = HmmModel(self.cells, settings.null_probability)
        self._stage: _Stage = "ibm1"
        self._log_likelihoods: list[float] = []

    def e_step(self, stage: _Stage) -> Floats:
        """Return the probability of each cell to be a link, by the model of this stage."""
        self._stage = stage
        posterior, log_likelihood = self._posterior()
        self._log_likelihoods.append(log_likelihood)
        return posterior

    def m_step(self, posterior: Floats) -> None:
        """Fit the parameters to the expected links."""
        self._translations.m_step(posterior)
        if self._stage == "hmm":
            self._hmm.m_step()
        elif self._stage == "fast_align" and self._settings.learn_tension:
            self._diagonal.m_step(posterior)

    def links(self) -> Iterator[list[Link]]:
        """Yield, for each pair, the most probable source word of each target word."""
        posterior, _ = self._posterior()
        return self.cells.best_links(posterior)

    def table(self) -> TranslationTable:
        """Return the translation probabilities."""
        model = self._translations
        return TranslationTable(
            *self._words, model.rows, model.columns, model.probabilities,
            self._diagonal.tension, tuple(self._log_likelihoods),
        )  # fmt: skip

    def _posterior(self) -> tuple[Floats, float]:
        translation = self._translations.by_cell()
        if self._stage == "hmm":
            return self._hmm.e_step(translation)
        return self._diagonal.e_step(translation, uniform=self._stage == "ibm1")
