"""Curriculum for triplet losses: all negatives at first, then fewer and harder ones.

From the start, the hardest negatives alone make a new model collapse: its hardest negatives
are closer than its positives, so the loss is smallest where all distances are zero. Once the
model separates images, they are the most instructive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from polyglance.objectives.top_triplets import TripletRule
from polyglance.training.mixture import Task, step_of


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

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Return the task's losses under the rule of this step."""
        self.set_rule(replace(self.rule, negatives=self.negatives(step_of(generator))))
        return self.task.losses(generator)

    def negatives(self, step: int) -> int:
        """Return the number of negatives at a step, which falls geometrically."""
        progress = min(1.0, step / self.steps) if self.steps else 1.0
        ratio = float(self.rule.negatives / self.candidates)
        return round(self.candidates * math.pow(ratio, progress))
