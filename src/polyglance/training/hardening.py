"""Triplets from easy to hard: all negatives at first, then fewer and harder ones.

The most violated constraints alone teach a new model to call everything the same:
its worst negatives lie nearer than its positives, so the loss is least where all
distances are zero. Once the model tells pictures apart they are what teaches it most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from polyglance.objectives.top_triplets import TripletRule
from polyglance.training.mixture import Task, step_of


class FromEasyToHard:
    """A task whose rule of triplets counts fewer negatives from step to step."""

    def __init__(
        self,
        task: Task,
        obey: Callable[[TripletRule], None],
        rule: TripletRule,
        *,
        candidates: int,
        steps: int,
    ) -> None:
        """``obey`` gives the task a rule; after ``steps`` that is ``rule``, before one with more
        of all the ``candidates``."""
        self.task, self.obey, self.rule = task, obey, rule
        self.candidates, self.steps = max(candidates, rule.negatives), steps

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """The task's, by the rule of this step."""
        self.obey(replace(self.rule, negatives=self.negatives(step_of(generator))))
        return self.task.losses(generator)

    def negatives(self, step: int) -> int:
        """How many count: as many times fewer in every step."""
        done = min(1.0, step / self.steps) if self.steps else 1.0
        share = float(self.rule.negatives / self.candidates)
        return round(self.candidates * math.pow(share, done))
