"""Questions about pictures, to be answered: what is drawn in a step, and its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.answering import Answering
from polyglance.nn.sending import sent
from polyglance.objectives.answering import AnswerLoss, answering
from polyglance.text.flat import spread
from polyglance.training.caption_sources import read_captions
from polyglance.training.distribution import own_share
from polyglance.training.region_table import RegionTable

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AnswerTargets:
    """What answers are worth, question after question; all others are worth nothing."""

    classes: Indices
    """The classes of answers that score, end to end."""
    scores: NDArray[np.float32]
    lengths: Indices
    """How many each question has."""
    answers: int
    """How many classes there are."""

    @classmethod
    def of(cls, scores: Sequence[Mapping[int, float]], answers: int) -> AnswerTargets:
        """From the classes that score, for each question."""
        return cls(
            np.array([number for found in scores for number in found], np.int64),
            np.array([score for found in scores for score in found.values()], np.float32),
            np.array([len(found) for found in scores], np.int64),
            answers,
        )

    def mean(self) -> Tensor:
        """What each answer is worth on average over all questions."""
        totals = np.bincount(self.classes, self.scores, minlength=self.answers)
        return torch.from_numpy(totals / max(len(self.lengths), 1)).float()

    def gather(self, rows: Indices) -> Tensor:
        """The targets of these questions, (questions, answers)."""
        lengths = self.lengths[rows]
        places = spread((np.cumsum(self.lengths) - self.lengths)[rows], lengths)
        targets = np.zeros((len(rows), self.answers), np.float32)
        targets[np.repeat(np.arange(len(rows)), lengths), self.classes[places]] = self.scores[
            places
        ]
        return torch.from_numpy(targets)


class AnsweredQuestions:
    """Questions about pictures, in all languages: which answers people would accept."""

    def __init__(
        self,
        model: Answering,
        regions: RegionTable,
        questions: CaptionTable,
        targets: AnswerTargets,
        *,
        batch: int,
        loss: AnswerLoss = "binary",
        smoothing: float = 1.0,
    ) -> None:
        """Questions none of whose answers is a class are never drawn.

        A language is drawn as often as it has questions, to the power of ``smoothing``:
        1 treats all questions alike, 0 all languages.
        """
        self.model, self.regions, self.questions, self.targets = model, regions, questions, targets
        self.batch, self.loss, self.smoothing = batch, loss, smoothing
        check(self, lambda value: value >= 1, "1 or more", "batch")
        check(self, lambda value: 0 <= value <= 1, "a number from 0 to 1", "smoothing")
        rows = own_share(np.flatnonzero(targets.lengths))
        by_language = [rows[questions.languages[rows] == n] for n in range(len(questions.names))]
        if not len(rows):
            raise PolyglanceError("no question has an answer to learn: lower answers.least")
        self._rows = np.concatenate(by_language)
        self._count = np.array([len(found) for found in by_language], np.int64)
        self._base = np.cumsum(self._count) - self._count
        weights = np.where(self._count > 0, self._count.astype(float) ** smoothing, 0.0)
        self.shares = weights / weights.sum()

    def draw(self, generator: np.random.Generator) -> Indices:
        """Questions, as rows of the table."""
        language = generator.choice(len(self.shares), size=self.batch, p=self.shares)
        drawn: Indices = self._rows[
            self._base[language] + generator.integers(self._count[language])
        ]
        return drawn

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw questions, a look at the picture of each, and answer."""
        rows = self.draw(generator)
        device = self.regions.features.device
        regions, _ = self.regions.take(self.questions.owners[rows], generator)
        logits = self.model(read_captions(self.questions, rows).to(device), regions)
        targets = sent(self.targets.gather(rows), device)
        return {"answering": answering(logits, targets, self.loss)}
