"""The task of visual question answering: score all answers to a question about an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import pack_captions
from polyglance.batches.order import GroupedOrder, Streaming
from polyglance.batches.regions import RegionBatch, RegionSource
from polyglance.config import validate_fields
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.vqa import VQAModel
from polyglance.nn.packed_pairs import Text
from polyglance.objectives.vqa import AnswerLoss, vqa_loss
from polyglance.training.mixture import item_draws, rank_share, take_in_order
from polyglance.utils.ragged import ragged_arange

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AnswerTargets:
    """The score of each class as an answer to each question; classes not listed score 0."""

    class_ids: Indices
    """Classes that score, question after question."""
    scores: NDArray[np.float32]
    lengths: Indices
    """``(questions,)``: how many classes score."""
    num_classes: int

    @classmethod
    def from_scores(cls, scores: Sequence[Mapping[int, float]], num_classes: int) -> AnswerTargets:
        """Build the targets from the classes that score, for each question."""
        return cls(
            np.array([number for some in scores for number in some], np.int64),
            np.array([score for some in scores for score in some.values()], np.float32),
            np.array([len(some) for some in scores], np.int64),
            num_classes,
        )

    def mean(self) -> Tensor:
        """Return the mean score of each class over all questions, ``(classes,)``."""
        totals = np.bincount(self.class_ids, self.scores, minlength=self.num_classes)
        return torch.from_numpy(totals / max(len(self.lengths), 1)).float()

    def gather(self, rows: Indices) -> Tensor:
        """Return the targets of these questions, ``(questions, classes)``."""
        lengths = self.lengths[rows]
        index = ragged_arange((np.cumsum(self.lengths) - self.lengths)[rows], lengths)
        targets = np.zeros((len(rows), self.num_classes), np.float32)
        questions = np.repeat(np.arange(len(rows)), lengths)
        targets[questions, self.class_ids[index]] = self.scores[index]
        return torch.from_numpy(targets)


@dataclass(frozen=True, eq=False)
class QuestionBatch(Batch):
    """Questions about images, and the scores of all answers."""

    text: Text
    regions: RegionBatch
    targets: Tensor
    """``(questions, classes)``."""

    def counts(self) -> dict[str, int]:
        """Return the number of questions."""
        return {"vqa": len(self.targets)}


class VQATask:
    """Predict the answers that people would accept, in all languages."""

    def __init__(
        self,
        model: VQAModel,
        regions: RegionSource,
        questions: CaptionTable,
        targets: AnswerTargets,
        *,
        batch: int,
        loss: AnswerLoss = "binary",
        language_alpha: float = 1.0,
        unmatched: NDArray[np.bool_] | None = None,
        streaming: Streaming | None = None,
    ) -> None:
        """Prepare the task.

        Args:
            model: scores all answers.
            regions: of the images.
            questions: their record ids are the images.
            targets: of the same questions.
            batch: questions a step.
            loss: binary or categorical cross-entropy.
            language_alpha: a language's probability is proportional to its questions to this
                power: 1 treats all questions alike, 0 all languages.
            unmatched: ``(questions,)``, which questions without a scoring class are sampled too;
                None for none.
            streaming: go through each language's questions in shuffled order instead of drawing
                them with replacement, for images on disk.
        """
        self.model, self.regions, self.questions, self.targets = model, regions, questions, targets
        self.batch, self.loss, self.language_alpha = batch, loss, language_alpha
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch")
        alpha = "language_alpha"
        validate_fields(self, lambda value: 0 <= value <= 1, "a number from 0 to 1", alpha)
        sampled = targets.lengths > 0
        rows = np.flatnonzero(sampled if unmatched is None else sampled | unmatched)
        by_language = [
            rows[questions.language_ids[rows] == n] for n in range(len(questions.language_codes))
        ]
        if not len(rows):
            raise PolyglanceError(
                "no question has an answer among the classes: lower answers.min_score"
            )
        self._rows = np.concatenate(by_language)
        self._count = np.array([len(own) for own in by_language], np.int64)
        self._base = np.cumsum(self._count) - self._count
        weights = np.where(self._count > 0, self._count.astype(float) ** language_alpha, 0.0)
        self.probabilities = weights / weights.sum()
        self._order: GroupedOrder | None = None
        if streaming is not None:
            self._order = streaming.order(self._count, self.probabilities)

    def sample_rows(self, generator: np.random.Generator) -> Indices:
        """Sample questions, as rows of the table."""
        if self._order is not None:
            language, question = take_in_order(self._order, self.batch, generator)
        else:
            languages = len(self.probabilities)
            language = generator.choice(languages, size=self.batch, p=self.probabilities)
            question = generator.integers(self._count[language])
        rows: Indices = self._rows[self._base[language] + question]
        return rows

    def sample_images(self, rows: Indices, generator: np.random.Generator) -> Indices:
        """Return the image that each question is asked about: its own."""
        return self.questions.record_ids[rows]

    def sample(self, generator: np.random.Generator) -> QuestionBatch:
        """Sample questions, and a view of each one's image."""
        share = rank_share(self.batch)
        rows = self.sample_rows(generator)
        images = self.sample_images(rows, generator)[share]
        rows = rows[share]
        draws = item_draws(generator, self.batch, share)
        regions = self.regions.select(images, draws)
        text = pack_captions(self.questions, rows)
        return QuestionBatch(text, regions, self.targets.gather(rows))

    def losses(self, batch: QuestionBatch) -> dict[str, Tensor]:
        """Score all answers to the questions."""
        batch = batch.to(next(self.model.parameters()).device)
        logits = self.model(batch.text, batch.regions.load())
        return {"vqa": vqa_loss(logits, batch.targets, self.loss)}
