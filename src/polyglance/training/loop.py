"""The training loop shared by all models.

Each step draws a task, sums its losses and updates the weights. The loop logs, validates,
saves checkpoints, keeps the best and the latest state, and resumes an interrupted run.
What a step learns is up to the tasks (`polyglance.training.mixture`).
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyglance.errors import DataError, PolyglanceError
from polyglance.nn.transformer import compile_layers
from polyglance.training.checkpoints import (
    Schema,
    Snapshot,
    find_checkpoint,
    load_checkpoint,
    read_state,
    save_checkpoint,
)
from polyglance.training.distributed import (
    average_values,
    barrier,
    broadcast_buffers,
    broadcast_parameters,
    count_weights,
    on_first_rank,
    rank,
    world_size,
)
from polyglance.training.loop_config import LoopConfig, as_json, require_same_config
from polyglance.training.mixture import Mixture, seed_torch
from polyglance.training.optimiser import (
    NamedGroups,
    build_optimiser,
    clip_gradients,
    freeze_others,
    gradient_checkpointing,
    name_groups,
)
from polyglance.training.parallel import Runner, run_parallel
from polyglance.training.prefetch import DEPTH, Prefetcher, PreparedBatch
from polyglance.training.run_log import RunLog
from polyglance.training.schedules import lr_factor
from polyglance.training.state_tensors import count_bytes
from polyglance.training.throughput import Throughput, describe_speed, pairs_of
from polyglance.training.weight_average import WeightAverage
from polyglance.utils.progress import progress

__all__ = ["LoopConfig", "TrainingResult", "Validate", "train_loop"]

_BEST_IN_MEMORY = 4_000_000_000
"""Bytes that best states, two while one is taken, may have in memory until the next checkpoint."""
Validate = Callable[[], dict[str, float]]
"""Returns named validation metrics; higher is better."""


@dataclass(frozen=True)
class TrainingResult:
    """Summary of a finished training run."""

    steps: int
    """Steps made, fewer than asked for after early stopping."""
    best: float | None
    """The highest value of the validation metric; None without validation."""
    best_step: int
    seconds: float


def train_loop(
    model: nn.Module,
    mixture: Mixture,
    config: LoopConfig,
    folder: Path,
    *,
    validate: Validate | None = None,
    metric: str = "score",
    param_groups: Iterable[dict[str, Any]] | None = None,
    prefetch: int = DEPTH,
    quiet: bool = False,
) -> TrainingResult:
    """Train ``model`` and leave its best state in it.

    Under `init_distributed` all processes call this together and end with the same weights.

    Args:
        model: What is trained, in place.
        mixture: The tasks to draw from.
        config: Optimiser, schedule and intervals.
        folder: Run folder; receives ``log.jsonl``, ``speed.jsonl``, ``latest/`` (to resume
            from) and ``best/``.
        validate: Returns validation metrics; without it the last state is the result.
        metric: The validation metric that decides which state is best.
        param_groups: Parameter groups of the optimiser, all parameters by default;
            ``lr_multiplier`` in a group multiplies its learning rate.
        prefetch: Batches to sample ahead in the background; changes nothing but the speed.
        quiet: Show no progress bar.
    """
    broadcast_parameters(model)
    groups = name_groups(model, param_groups)
    compile_layers(model, enabled=config.compiles(next(model.parameters()).device))
    with (
        freeze_others(model, groups),
        gradient_checkpointing(model, config.gradient_checkpointing),
        run_parallel(model, config.sharding) as runner,
    ):
        training = _Training(model, runner, groups, config, folder)
        batches = Prefetcher(
            mixture,
            training.remaining_steps,
            seed=config.seed,
            micro_batches=config.grad_accumulation_steps,
            device=training.device,
            depth=prefetch,
        )
        with batches, training.saving_best():
            training.run(batches, validate, metric, quiet=quiet)
        state = training.state
        if training.average is not None and state["best"] is None:
            training.average.exchange()
    if state["best"] is not None and load_checkpoint(folder / "best", model) is None:
        raise DataError(
            f"{folder / 'best'}, the checkpoint of step {state['best_step']}, is gone: bring it"
            " back from a copy, or train into another folder"
        )
    barrier()  # whoever is first may remove it
    model.eval()
    return TrainingResult(state["step"], state["best"], state["best_step"], state["seconds"])


class _Training:
    """A training run on this process, from its first step or from its latest checkpoint."""

    def __init__(
        self,
        model: nn.Module,
        runner: Runner,
        groups: NamedGroups,
        config: LoopConfig,
        folder: Path,
    ) -> None:
        self.model, self.runner, self.config, self.folder = model, runner, config, folder
        self.device = next(model.parameters()).device
        self.optimiser = build_optimiser(
            model,
            groups,
            learning_rate=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        self.average = None if config.ema_decay is None else WeightAverage(model, config.ema_decay)
        self.best: Snapshot | None = None
        """The best state, until it is written with the next checkpoint to resume from."""
        self.state = _initial_state()
        if (checkpoint := find_checkpoint(folder / "latest")) is not None:
            self.state |= read_state(checkpoint, _STATE_SCHEMA)
            require_same_config(self.state["config"], config, folder)
            load_checkpoint(
                checkpoint, model, self.optimiser, average=self.ema_values, verify=False
            )
        self.state["config"] = as_json(config)
        self.seconds_before, self.start = self.state["seconds"], time.monotonic()
        dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        self.throughput = Throughput(self.device, dtype)
        self.log = (
            RunLog(folder, self.state["step"], tensorboard=config.tensorboard)
            if rank() == 0
            else None
        )

    @property
    def remaining_steps(self) -> range:
        """The steps to make; none after early stopping."""
        end = self.state["step"] if self.state["stopped"] else self.config.steps
        return range(self.state["step"], end)

    def run(
        self,
        batches: Iterator[PreparedBatch],
        validate: Validate | None,
        metric: str,
        *,
        quiet: bool,
    ) -> None:
        """Make the remaining steps."""
        state, config, status = self.state, self.config, None
        bar = progress("training", config.steps, completed=state["step"], quiet=quiet or rank() > 0)
        with bar as advance:
            for step in self.remaining_steps:
                task, losses = self.step(batches, step)
                state["step"] = step + 1
                last = state["step"] == config.steps
                logs, saves, validates = (
                    last or _due(every, state["step"])
                    for every in (config.log_every, config.save_every, config.validate_every)
                )
                if logs or saves or validates:  # reading the values waits for the accelerator
                    values = average_values(losses)
                    _require_finite(values, state["step"])
                if logs:
                    rates = self.throughput.report()
                    status = describe_speed(rates)
                    if self.log:
                        self.log.write_losses(state["step"], task, values)
                        self.log.write_speed(state["step"], rates)
                advance(1, status)
                before = time.perf_counter()
                if validate and validates:
                    self.validate(validate, metric)
                if saves or state["stopped"]:
                    self.checkpoint()
                self.throughput.pause(time.perf_counter() - before)
                if state["stopped"]:
                    break
        state["seconds"] = self.seconds

    def step(self, batches: Iterator[PreparedBatch], step: int) -> tuple[str, dict[str, Tensor]]:
        """Make one optimiser step; return the task's name, its losses and the gradient norm."""
        config, optimiser = self.config, self.optimiser
        self.model.train()
        factor = lr_factor(config.schedule, step, warmup=config.warmup, steps=config.steps)
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * group["lr_multiplier"] * factor
        values = dict[str, Tensor]()
        for micro_batch in range(config.grad_accumulation_steps):
            prepared = next(batches)
            if self.throughput.must_count(prepared.name):
                self.count_operations(prepared)
            seed_torch(config.seed, step, rank(), micro_batch)
            more = micro_batch + 1 < config.grad_accumulation_steps
            with self.runner.accumulate() if more else contextlib.nullcontext():
                means = self.backward(prepared)
            values = {key: values.get(key, 0.0) + mean for key, mean in means.items()}
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        norm = clip_gradients(parameters, config.grad_clip or math.inf)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(step + 1)
        self.throughput.add(prepared.name, pairs_of(prepared.task), config.grad_accumulation_steps)
        return prepared.name, {**values, "grad_norm": norm}

    def backward(self, prepared: PreparedBatch) -> dict[str, Tensor]:
        """Add a batch's gradients; return its losses, their sum over micro-batches the mean."""

        losses = self.runner.forward(lambda: self.losses(prepared))
        weights = count_weights(prepared.batch.counts(), self.device)
        means = {
            key: loss.float() * weights.get(key, 1.0) / self.config.grad_accumulation_steps
            for key, loss in losses.items()
        }
        torch.stack([*means.values()]).sum().backward()  # type: ignore[no-untyped-call]
        return {key: mean.detach() for key, mean in means.items()}

    def losses(self, prepared: PreparedBatch) -> dict[str, Tensor]:
        """Return the losses of a batch, in the precision of training."""
        with _autocast(self.device, self.config):
            return prepared.task.losses(prepared.batch)

    def count_operations(self, prepared: PreparedBatch) -> None:
        """Count the operations of a batch in a pass of its own, which leaves no trace."""
        self.model.eval()
        self.throughput.count(
            prepared.name, lambda: self.runner.evaluate(lambda: self.losses(prepared))
        )
        self.model.train()

    def validate(self, validate: Validate, metric: str) -> None:
        """Validate, keep the state if it is the best, and stop after too many that are not."""
        state = self.state
        broadcast_buffers(self.model)
        self.model.eval()
        averaged = contextlib.nullcontext() if self.average is None else self.average.applied()
        with torch.no_grad(), averaged:
            own = self.runner.evaluate(validate)
        # Sums over the same data may differ in the last digit between processes.
        metrics = on_first_rank(lambda: own)
        if self.log:
            self.log.write_validation(state["step"], metrics)
        if metrics[metric] > (-math.inf if state["best"] is None else state["best"]):
            state["best"], state["best_step"] = metrics[metric], state["step"]
            state["validations_since_best"] = 0
            self.keep_best()
        else:
            state["validations_since_best"] += 1
            patience = self.config.patience
            state["stopped"] = patience is not None and state["validations_since_best"] >= patience

    def keep_best(self) -> None:
        """Keep the state as the best: in memory until the next checkpoint, or on the disk.

        Models improve at most validations, and a run that is killed goes on from its last
        checkpoint, so that only the best state before that one needs to be on the disk.
        """
        self.state["seconds"] = self.seconds
        fits = 2 * count_bytes(self.model, self.optimiser, self.ema_values) <= _BEST_IN_MEMORY
        # Processes that fail may end this one before it has written.
        waits = fits and self.config.save_every > 0 and world_size() == 1
        args = self.model, self.optimiser, self.state
        self.best = Snapshot.take(*args, average=self.ema_values, copy=waits)
        if not waits:
            self.write_best()

    def write_best(self) -> None:
        """Write the best state, if it is not on the disk."""
        best = self.best
        if best is not None:
            on_first_rank(lambda: best.write(self.folder / "best"))
            self.best = None

    @contextlib.contextmanager
    def saving_best(self) -> Iterator[None]:
        """Write the best state also when training ends in an error or by Ctrl-C."""
        try:
            yield
        except BaseException:
            if self.best is not None:
                try:
                    self.best.write(self.folder / "best")
                except PolyglanceError as error:
                    print(f"the best state is lost: {error}", file=sys.stderr)
            raise

    def checkpoint(self) -> None:
        """Save the state as ``latest``, to resume from, after the best one."""
        self.write_best()
        broadcast_buffers(self.model)
        self.state["seconds"] = self.seconds
        save_checkpoint(
            self.folder / "latest",
            self.model,
            self.optimiser,
            self.state,
            average=self.ema_values,
            keep=self.config.keep_checkpoints,
        )

    @property
    def ema_values(self) -> Mapping[str, Tensor] | None:
        """Averaged weights by name, if the run has any."""
        return None if self.average is None else self.average.values

    @property
    def seconds(self) -> float:
        """Seconds of training, with those of earlier sessions."""
        seconds: float = self.seconds_before + time.monotonic() - self.start
        return seconds


def _autocast(
    device: torch.device, config: LoopConfig
) -> contextlib.AbstractContextManager[torch.autocast | None]:
    if config.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


_STATE_SCHEMA: Schema = {
    "step": (int,),
    "best": (int, float, type(None)),
    "best_step": (int,),
    "validations_since_best": (int,),
    "stopped": (bool,),
    "seconds": (int, float),
    "config": (dict,),
}


def _initial_state() -> dict[str, Any]:
    return {
        "step": 0,
        "best": None,
        "best_step": 0,
        "validations_since_best": 0,
        "stopped": False,
        "seconds": 0.0,
    }


def _require_finite(values: dict[str, float], step: int) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise PolyglanceError(
                f"{name!r} is {value} at step {step}: lower learning_rate or set grad_clip"
            )
