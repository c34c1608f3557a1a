"""One step of a task: its batch sampled, and its losses."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from polyglance.training.mixture import Task, seed_torch, step_generator


def losses_at(task: Task, seed: int, step: int) -> dict[str, Tensor]:
    """Return the losses of a training step, as the loop computes them."""
    seed_torch(seed, step, 0)
    return task.losses(task.sample(step_generator(seed, step)))


def losses_of(task: Task, generator: np.random.Generator) -> dict[str, Tensor]:
    """Return the losses of a batch that a generator samples."""
    return task.losses(task.sample(generator))
