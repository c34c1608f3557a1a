"""A task is something to learn in one step; a mixture decides which one a step takes."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Tasks and how often each is drawn, the same draw on every process.

    UC2 draws ITM : MLM : MRTM : VTLM as 9 : 12 : 9 : 3, one a step.
    """

    def __init__(
        self, tasks: Mapping[str, Task], ratios: Mapping[str, float] | None = None
    ) -> None:
        self.tasks = dict(tasks)
        weights = np.array([1.0 if ratios is None else ratios[name] for name in self.tasks])
        self.shares = weights / weights.sum()

    def choose(self, seed: int, step: int) -> tuple[str, Task]:
        """The task of a step; depends on nothing but seed and step, so that all agree."""
        names = list(self.tasks)
        name = names[int(np.random.default_rng([seed, step]).choice(len(names), p=self.shares))]
        return name, self.tasks[name]


class StepGenerator(np.random.Generator):
    """Draws for one step of training, and knows which it is: some tasks grow harder."""

    def __init__(self, bits: np.random.BitGenerator, step: int) -> None:
        super().__init__(bits)
        self.step = step


def seed_step(seed: int, step: int, rank: int, part: int = 0) -> StepGenerator:
    """The randomness of one step on one process: for sampling (returned), dropout and noise (set).

    Each ``part`` of a step that takes several batches has its own. Nothing is carried from
    step to step, so that a resumed run goes on as if it had never stopped.
    """
    torch.manual_seed((seed * 1_000_003 + step) * 1_009 + rank + (part << 50))
    parts = [part] if part else []
    return StepGenerator(np.random.PCG64([seed, step, rank + 1, *parts]), step)


def step_of(generator: np.random.Generator) -> int:
    """The step that a generator of `seed_step` is for."""
    if not isinstance(generator, StepGenerator):
        raise ValueError("which step this is must be known: draw by a generator of seed_step")
    return generator.step
