"""Tasks (what one step learns), and their combinations: one task a step, or several summed.

A task samples its batch on the CPU (`Task.sample`), perhaps several steps ahead in a background
thread (`polyglance.training.prefetch`), and computes losses on the device (`Task.losses`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.order import GroupedOrder
from polyglance.errors import PolyglanceError
from polyglance.objectives.draws import ItemDraws
from polyglance.training.distributed import rank, world_size


class Task(Protocol):
    """A model and its losses on one kind of batch."""

    def sample(self, generator: np.random.Generator) -> Batch:
        """Draw and gather a batch on the CPU.

        The generator is the same on all processes: sample the batch of all of them, and keep
        this one's share (`rank_share`). Called in the order of steps, from another thread than
        `losses`; nothing may be drawn from global generators.
        """
        ...

    def losses(self, batch: Any, /) -> dict[str, Tensor]:
        """Return the named losses of a batch that `sample` made, to be summed.

        Means over the batch's items; `Batch.counts` says of how many.
        """
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


@dataclass(frozen=True, eq=False)
class MultiBatch(Batch):
    """The batches of several tasks."""

    parts: tuple[tuple[str, Batch], ...]
    """Names of tasks and their batches."""

    def counts(self) -> dict[str, int]:
        """Return the counts of all losses, named ``task.loss``."""
        return {
            f"{name}.{key}": count
            for name, batch in self.parts
            for key, count in batch.counts().items()
        }


class MultiTask:
    """Several tasks in every step, their losses summed with weights."""

    def __init__(self, tasks: Sequence[tuple[str, Task, float]]) -> None:
        """``tasks`` are triples of name, task and weight."""
        self.tasks = tasks

    def sample(self, generator: np.random.Generator) -> MultiBatch:
        """Sample a batch for each task."""
        return MultiBatch(tuple((name, task.sample(generator)) for name, task, _ in self.tasks))

    def losses(self, batch: MultiBatch) -> dict[str, Tensor]:
        """Return all weighted losses, named ``task.loss``."""
        return {
            f"{name}.{key}": weight * loss
            for (name, task, weight), (_, part) in zip(self.tasks, batch.parts, strict=True)
            for key, loss in task.losses(part).items()
        }


class TurnTask:
    """Several tasks of which each step has one: small tasks that would cost as much as large ones.

    Unlike `Mixture`, it can stand beside other tasks in a `MultiTask`.
    """

    def __init__(self, tasks: Sequence[tuple[str, Task, float]]) -> None:
        """``tasks`` are triples of name, task and weight."""
        self.choices = {name: (task, weight) for name, task, weight in tasks}

    def sample(self, generator: np.random.Generator) -> MultiBatch:
        """Sample a batch for one task, each with the same probability."""
        names = list(self.choices)
        name = names[int(generator.integers(len(names)))]
        return MultiBatch(((name, self.choices[name][0].sample(generator)),))

    def losses(self, batch: MultiBatch) -> dict[str, Tensor]:
        """Return the weighted losses of the task that the batch is for, named ``task.loss``."""
        ((name, part),) = batch.parts
        task, weight = self.choices[name]
        return {f"{name}.{key}": weight * loss for key, loss in task.losses(part).items()}


class StepGenerator(np.random.Generator):
    """The generator of one training step, which knows the step's number for curricula."""

    def __init__(self, bits: np.random.BitGenerator, step: int, batch_number: int) -> None:
        super().__init__(bits)
        self.step, self.batch_number = step, batch_number
        self.taken: dict[int, int] = {}
        """Items that this batch took from each order."""


def step_generator(
    seed: int, step: int, micro_batch: int = 0, micro_batches: int = 1
) -> StepGenerator:
    """Return the generator that samples a step's batch, the same on all processes.

    Each micro-batch of an accumulated step gets its own stream. No state is carried between
    steps, so that a resumed run continues exactly.

    Args:
        seed: Of the run.
        step: Of the run.
        micro_batch: The number of the batch within the step.
        micro_batches: Batches a step.
    """
    suffix = [micro_batch] if micro_batch else []
    bits = np.random.PCG64([seed, step, 1, *suffix])
    return StepGenerator(bits, step, step * micro_batches + micro_batch)


def seed_torch(seed: int, step: int, rank: int, micro_batch: int = 0) -> None:
    """Seed torch's generators (dropout) for a step, differently on each process."""
    value = (seed * 1_000_003 + step) * 1_009 + rank + (micro_batch << 50)
    # For every accelerator that is not in use, `torch.manual_seed` would keep the seed and the
    # stack for later: a third of a small model's step, and memory that is never freed.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(value)
    if torch.xpu.is_initialized():  # type: ignore[no-untyped-call]
        torch.xpu.manual_seed_all(value)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(value)


def step_of(generator: np.random.Generator) -> int:
    """Return the training step that a generator from `step_generator` belongs to."""
    if not isinstance(generator, StepGenerator):
        raise ValueError("the generator has no training step: make it with step_generator")
    return generator.step


def take_in_order(
    order: GroupedOrder, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take the next items of a corpus's order: their groups, and their numbers in these.

    Args:
        order: Of the corpus.
        count: Items of all processes.
        generator: Of the step, which decides where in the order the batch begins.
    """
    if not isinstance(generator, StepGenerator):
        raise ValueError("the generator has no training step: make it with step_generator")
    taken = generator.taken.get(id(order), 0)
    if taken + count > order.per_batch:
        raise ValueError(f"a batch takes {order.per_batch} items, and {taken + count} are asked")
    generator.taken[id(order)] = taken + count
    first = generator.batch_number * order.per_batch + taken
    return order.take(np.arange(first, first + count))


def rank_share(count: int, *, equal: bool = False) -> slice:
    """Return which of a batch's ``count`` items are this process's: a contiguous share.

    Args:
        count: items of the batch of all processes.
        equal: whether all shares must have the same size, as gathered rows must.
    """
    size = world_size()
    if count < size or (equal and count % size):
        raise PolyglanceError(
            f"a batch of {count} cannot be split over {size} processes: set batch to a multiple"
            f" of {size}"
        )
    return slice(count * rank() // size, count * (rank() + 1) // size)


def item_draws(
    generator: np.random.Generator, count: int, share: slice | np.ndarray | None = None
) -> ItemDraws:
    """Return random numbers for the items of a batch, or of this process's share of it.

    Args:
        generator: Of the step; one number is drawn from it, the same on all processes.
        count: Items of the batch of all processes.
        share: Which of them this process has; None for all.
    """
    items = np.arange(count)
    draws = ItemDraws.of(int(generator.integers(2**63)), items if share is None else items[share])
    return replace(draws, step=generator.step) if isinstance(generator, StepGenerator) else draws
