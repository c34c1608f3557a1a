"""Time a few training steps of a stage's tasks, as the training loop makes them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.errors import PolyglanceError
from polyglance.nn.transformer import compile_layers
from polyglance.recipes.stages import Stage
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import Mixture, MultiBatch, Task
from polyglance.training.optimiser import (
    build_optimiser,
    clip_gradients,
    freeze_others,
    gradient_checkpointing,
    name_groups,
)
from polyglance.training.prefetch import Prefetcher, PreparedBatch
from polyglance.training.throughput import count_training_flops, pairs_of


@dataclass(frozen=True)
class TaskProbe:
    """What one batch of a task takes on one accelerator."""

    name: str
    share: float
    """The probability of a step to be of this task."""
    pairs: int
    """Pairs of image and text that a batch encodes, negatives included; of a task without
    images, what its batch counts: sentences, regions or sub-words."""
    compute_seconds: float
    """Of sampling, forward and backward pass of a batch; grows with the batch."""
    update_seconds: float
    """Of clipping and updating the weights; the same for all batches."""
    activation_bytes: int
    """Memory of a batch, besides weights, gradients and the optimiser's state."""
    flops: float
    """Operations of the forward and backward pass of a batch; 0 if they cannot be counted."""


@dataclass(frozen=True)
class StageProbe:
    """The probes of a stage's tasks, and the size of what it trains."""

    tasks: tuple[TaskProbe, ...]
    weight_bytes: int
    """Of the whole model."""
    gradient_bytes: int
    """Of the parameters that the stage trains."""


def probe_stage(model: nn.Module, stage: Stage, *, warmup: int, steps: int) -> StageProbe:
    """Time the tasks of a stage that its mixture draws at all.

    Args:
        model: trained for these steps, in place.
        stage: with its tasks and loop.
        warmup: steps of each task before those that are timed.
        steps: steps of each task that are timed.
    """
    groups = name_groups(model, stage.groups)
    device = next(model.parameters()).device
    compile_layers(model, enabled=stage.loop.compiles(device))
    model.train()
    trained = {name for names, _ in groups for name in names}
    with (
        freeze_others(model, groups),
        gradient_checkpointing(model, stage.loop.gradient_checkpointing),
    ):
        loop = stage.loop
        optimiser = build_optimiser(
            model, groups, learning_rate=1e-6, betas=loop.betas, weight_decay=loop.weight_decay
        )
        stepper = _Stepper(model, optimiser, loop, device)
        tasks = tuple(
            stepper.probe(name, task, float(share), warmup=warmup, steps=steps)
            for (name, task), share in zip(
                stage.tasks.tasks.items(), stage.tasks.probabilities, strict=True
            )
            if share > 0
        )
    sizes = {name: p.numel() * p.element_size() for name, p in model.named_parameters()}
    trained_bytes = sum(size for name, size in sizes.items() if name in trained)
    return StageProbe(tasks, sum(sizes.values()), trained_bytes)


class _Stepper:
    """Makes training steps of tasks, and measures them."""

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        loop: LoopConfig,
        device: torch.device,
    ) -> None:
        self.model, self.optimiser, self.loop, self.device = model, optimiser, loop, device
        self.parameters = [p for group in optimiser.param_groups for p in group["params"]]

    def probe(self, name: str, task: Task, share: float, *, warmup: int, steps: int) -> TaskProbe:
        """Time a task; memory and operations are measured in batches of their own."""
        total = warmup + steps + 2
        batches = Prefetcher(
            Mixture({name: task}), range(total), seed=self.loop.seed, device=self.device
        )
        try:
            with batches:
                for _ in range(warmup):
                    self.step(batches)
                times = [self.step(batches) for _ in range(steps)]
                measured = next(batches)
                activations = self.activation_bytes(lambda: self.backward(measured))
                counted = next(batches)
                flops = self.flops(lambda: self.losses(counted))
        except torch.OutOfMemoryError as error:
            raise PolyglanceError(
                f"a batch of {name} does not fit into the memory of {self.device}: plan for more"
                " accelerators with --gpus, or set loop.gradient_checkpointing to true; a smaller"
                " --probe-batch shows how much it would take"
            ) from error
        compute, update = (sorted(column)[len(times) // 2] for column in zip(*times, strict=True))
        pairs = _encoded_pairs(measured.batch) or pairs_of(task)
        pairs = pairs or sum(measured.batch.counts().values())
        return TaskProbe(name, share, pairs, compute, update, activations, flops)

    def step(self, batches: Iterator[PreparedBatch]) -> tuple[float, float]:
        """Make a step; return the seconds of its computation and of its update."""
        begin = self.now()
        self.backward(next(batches))
        middle = self.now()
        clip_gradients(self.parameters, self.loop.grad_clip or math.inf)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return middle - begin, self.now() - middle

    def backward(self, prepared: PreparedBatch) -> None:
        """Add a batch's gradients."""
        losses = self.losses(prepared)
        torch.stack([loss.float() for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]

    def losses(self, prepared: PreparedBatch) -> dict[str, Tensor]:
        """Return a batch's losses."""
        with self.autocast():
            return prepared.task.losses(prepared.batch)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Compute in the recipe's precision."""
        if self.loop.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def activation_bytes(self, function: Callable[[], None]) -> int:
        """Return the memory of a batch: measured on CUDA, else what its backward pass keeps."""
        self.optimiser.zero_grad(set_to_none=True)
        kept: int
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            function()
            peak = torch.cuda.max_memory_allocated(self.device) - before
            gradients = (p.grad for p in self.parameters if p.grad is not None)
            kept = peak - sum(g.numel() * g.element_size() for g in gradients)
        else:
            kept = _saved_bytes(self.model, function)
        self.optimiser.zero_grad(set_to_none=True)
        return max(0, kept)

    def flops(self, forward: Callable[[], Any]) -> float:
        """Count operations; 0 where torch cannot."""
        self.model.eval()
        try:
            return count_training_flops(forward)
        except (RuntimeError, NotImplementedError, TypeError, AssertionError):
            return 0.0
        finally:
            self.model.train()

    def now(self) -> float:
        """Return the time after the device's work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _saved_bytes(model: nn.Module, function: Callable[[], None]) -> int:
    """Return the bytes of all tensors that the backward pass keeps, parameters left out."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sum(saved.values())


def _encoded_pairs(batch: Batch) -> int:
    """Return how many pairs of image and text a batch has; 0 for one without images."""
    if isinstance(batch, MultiBatch):
        return sum(_encoded_pairs(part) for _, part in batch.parts)
    if (pairs := getattr(batch, "num_pairs", None)) is not None:
        return int(pairs)
    regions, text = getattr(batch, "regions", None), getattr(batch, "text", None)
    if regions is None or text is None:
        return 0
    return len(regions.packing.cu_seqlens) - 1
