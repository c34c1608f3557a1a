"""Tasks (what one step learns), and their combinations: one task a step, or several summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Task(Protocol):
    """A model and its losses on one kind of batch."""

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw a batch with ``generator`` and return named losses, to be summed."""
        ...


class Mixture:
    """Tasks of which each step draws one, the same on every process.

    UC2 draws ITM : MLM : MRTM : VTLM as 9 : 12 : 9 : 3.
    """

    def __init__(
        self, tasks: Mapping[str, Task], ratios: Mapping[str, float] | None = None
    ) -> None:
        self.tasks = dict(tasks)
        weights = np.array([1.0 if ratios is None else ratios[name] for name in self.tasks])
        self.probabilities = weights / weights.sum()

    def choose(self, seed: int, step: int) -> tuple[str, Task]:
        """Return the task of a step and its name; depends on ``seed`` and ``step`` alone."""
        names = list(self.tasks)
        draw = np.random.default_rng([seed, step]).choice(len(names), p=self.probabilities)
        name = names[int(draw)]
        return name, self.tasks[name]


class MultiTask:
    """Several tasks in every step, their losses summed with weights."""

    def __init__(self, tasks: Sequence[tuple[str, Task, float]]) -> None:
        """``tasks`` are triples of name, task and weight."""
        self.tasks = tasks

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Return all weighted losses, named ``task.loss``."""
        return {
            f"{name}.{key}": weight * loss
            for name, task, weight in self.tasks
            for key, loss in task.losses(generator).items()
        }


class StepGenerator(np.random.Generator):
    """The generator of one training step, which knows the step's number for curricula."""

    def __init__(self, bits: np.random.BitGenerator, step: int) -> None:
        super().__init__(bits)
        self.step = step


def seed_step(seed: int, step: int, rank: int, micro_batch: int = 0) -> StepGenerator:
    """Seed torch (dropout, noise) for a step and return the generator for sampling.

    Each process and each micro-batch of an accumulated step gets its own stream. No state
    is carried between steps, so that a resumed run continues exactly.
    """
    torch.manual_seed((seed * 1_000_003 + step) * 1_009 + rank + (micro_batch << 50))
    suffix = [micro_batch] if micro_batch else []
    return StepGenerator(np.random.PCG64([seed, step, rank + 1, *suffix]), step)


def step_of(generator: np.random.Generator) -> int:
    """Return the training step that a generator from `seed_step` belongs to."""
    if not isinstance(generator, StepGenerator):
        raise ValueError("the generator has no training step: make it with seed_step")
    return generator.step
