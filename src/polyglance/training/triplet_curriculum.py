"""Curriculum for triplet losses: all negatives at first, then fewer and harder ones.

From the start, the hardest negatives alone make a new model collapse: its hardest negatives
are closer than its positives, so the loss is smallest where all distances are zero. Once the
model separates images, they are the most instructive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.objectives.top_triplets import TripletRule
from polyglance.training.mixture import Task, step_of


@dataclass(frozen=True, eq=False)
class CurriculumBatch(Batch):
    """A task's batch and the number of negatives at its step."""

    batch: Batch
    negatives: int

    def counts(self) -> dict[str, int]:
        """Return the counts of the task's batch."""
        return self.batch.counts()


class TripletCurriculum:
    """Wraps a task so that its triplet rule counts fewer negatives from step to step."""

    def __init__(
        self,
        task: Task,
        set_rule: Callable[[TripletRule], None],
        rule: TripletRule,
        *,
        candidates: int,
        steps: int,
    ) -> None:
        """Wrap a task.

        Args:
            task: What is learned.
            set_rule: Gives the task a rule.
            rule: The final rule.
            candidates: Number of negatives at the first step.
            steps: Length of the curriculum; the final rule holds after it.
        """
        self.task, self.set_rule, self.rule = task, set_rule, rule
        self.candidates, self.steps = max(candidates, rule.negatives), steps

    def sample(self, generator: np.random.Generator) -> CurriculumBatch:
        """Sample the task's batch."""
        return CurriculumBatch(self.task.sample(generator), self.negatives(step_of(generator)))

    def losses(self, batch: CurriculumBatch) -> dict[str, Tensor]:
        """Return the task's losses under the rule of the batch's step."""
        self.set_rule(replace(self.rule, negatives=batch.negatives))
        return self.task.losses(batch.batch)

    def negatives(self, step: int) -> int:
        """Return the number of negatives at a step, which falls geometrically."""
        progress = min(1.0, step / self.steps) if self.steps else 1.0
        ratio = float(self.rule.negatives / self.candidates)
        return round(self.candidates * math.pow(ratio, progress))
