"""The training loop shared by all models.

Each step draws a task, sums its losses and updates the weights. The loop logs, validates,
saves checkpoints, keeps the best and the latest state, and resumes an interrupted run.
What a step learns is up to the tasks (`polyglance.training.mixture`).
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.training.checkpoints import load_checkpoint, save_checkpoint
from polyglance.training.distributed import (
    average_gradients,
    barrier,
    broadcast_parameters,
    rank,
)
from polyglance.training.mixture import Mixture, seed_step
from polyglance.training.schedules import Schedule, lr_factor
from polyglance.utils.progress import progress

Validate = Callable[[], dict[str, float]]
"""Returns named validation metrics; higher is better."""


@dataclass(frozen=True)
class LoopConfig:
    """Optimiser, schedule and intervals of a training run."""

    steps: int = 1000
    learning_rate: float = 2e-4
    """Peak learning rate; parameter groups may multiply it."""
    schedule: Schedule = "constant"
    warmup: int = 0
    """Steps of linear warm-up."""
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    grad_clip: float | None = None
    """Maximum norm of a step's gradient; None for no clipping."""
    grad_accumulation_steps: int = 1
    """Gradient accumulation: micro-batches per optimiser step, all of one task."""
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    validate_every: int = 0
    """Steps between validations; 0 for one at the end only."""
    save_every: int = 500
    """Steps between checkpoints to resume from; 0 for one at the end only."""
    log_every: int = 20
    """Steps between log lines; 0 for one at the end only."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")
        validate_fields(
            self, lambda value: value > 0, "a number above 0, or null for none", "grad_clip"
        )
        validate_fields(
            self, lambda value: value >= 0, "0 or more", "steps", "warmup", "weight_decay"
        )
        validate_fields(self, lambda value: value >= 1, "1 or more", "grad_accumulation_steps")
        every = ("validate_every", "save_every", "log_every")
        validate_fields(self, lambda value: value >= 0, "a number of steps, or 0", *every)
        validate_fields(
            self, lambda value: 0 <= value < 2**32, "a number from 0 to 4294967295", "seed"
        )
        bounds = "two numbers from 0 to less than 1"
        validate_fields(self, lambda both: all(0 <= value < 1 for value in both), bounds, "betas")


@dataclass(frozen=True)
class TrainingResult:
    """Summary of a finished training run."""

    steps: int
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
    quiet: bool = False,
) -> TrainingResult:
    """Train ``model`` and leave its best state in it.

    Under `init_distributed` all processes call this together and end with the same weights.

    Args:
        model: What is trained, in place.
        mixture: The tasks to draw from.
        config: Optimiser, schedule and intervals.
        folder: Run folder; receives ``log.jsonl``, ``latest/`` (to resume from) and ``best/``.
        validate: Returns validation metrics; without it the last state is the result.
        metric: The validation metric that decides which state is best.
        param_groups: Parameter groups of the optimiser, all parameters by default;
            ``lr_multiplier`` in a group multiplies its learning rate.
        quiet: Show no progress bar.
    """
    broadcast_parameters(model)
    optimiser = _optimiser(model, config, param_groups)
    state = load_checkpoint(folder / "latest", model, optimiser) or _initial_state(config)
    _require_same_config(state["config"], config, folder)
    state["config"] = _as_json(config)
    start, seconds_before = time.monotonic(), state["seconds"]
    log = _Log(folder / "log.jsonl", state["step"]) if rank() == 0 else None

    def checkpoint(name: str) -> None:
        if rank() == 0:
            state["seconds"] = seconds_before + time.monotonic() - start
            save_checkpoint(folder / name, model, optimiser, state)

    with progress(
        "training", config.steps, completed=state["step"], quiet=quiet or rank() > 0
    ) as advance:
        for step in range(state["step"], config.steps):
            task, losses = _step(model, mixture, config, optimiser, step)
            state["step"] = step + 1
            last = state["step"] == config.steps
            advance(1)
            logs, saves, validates = (
                last or _due(every, state["step"])
                for every in (config.log_every, config.save_every, config.validate_every)
            )
            if logs or saves or validates:  # reading the values waits for the accelerator
                values = {key: float(value) for key, value in losses.items()}
                _require_finite(values, state["step"])
            if log and logs:
                log.write({"step": state["step"], "task": task, **values})
            if validate and validates:
                metrics = _validate(model, validate)
                if log:
                    log.write({"step": state["step"], "validation": metrics})
                if metrics[metric] > (-math.inf if state["best"] is None else state["best"]):
                    state["best"], state["best_step"] = metrics[metric], state["step"]
                    checkpoint("best")
            if saves:
                checkpoint("latest")
    barrier()
    if state["best"] is not None:
        load_checkpoint(folder / "best", model)
    model.eval()
    seconds = seconds_before + time.monotonic() - start
    return TrainingResult(config.steps, state["best"], state["best_step"], seconds)


def _step(
    model: nn.Module,
    mixture: Mixture,
    config: LoopConfig,
    optimiser: torch.optim.Optimizer,
    step: int,
) -> tuple[str, dict[str, Tensor]]:
    """Make one optimiser step; return the task's name, its losses and the gradient norm."""
    model.train()
    factor = lr_factor(config.schedule, step, warmup=config.warmup, steps=config.steps)
    for group in optimiser.param_groups:
        group["lr"] = config.learning_rate * group["lr_multiplier"] * factor
    name, task = mixture.choose(config.seed, step)
    values: dict[str, Tensor] = {}
    for micro_batch in range(config.grad_accumulation_steps):
        generator = seed_step(config.seed, step, rank(), micro_batch)
        with _autocast(model, config):
            losses = task.losses(generator)
        means = {key: loss.float() / config.grad_accumulation_steps for key, loss in losses.items()}
        torch.stack([*means.values()]).sum().backward()  # type: ignore[no-untyped-call]
        values = {key: values.get(key, 0.0) + mean.detach() for key, mean in means.items()}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    average_gradients(parameters)
    norm = nn.utils.clip_grad_norm_(parameters, config.grad_clip or math.inf)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return name, {**values, "grad_norm": norm}


def _autocast(
    model: nn.Module, config: LoopConfig
) -> contextlib.AbstractContextManager[torch.autocast | None]:
    if config.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(next(model.parameters()).device.type, torch.bfloat16)


def _optimiser(
    model: nn.Module, config: LoopConfig, param_groups: Iterable[dict[str, Any]] | None
) -> torch.optim.Optimizer:
    if param_groups is None:
        param_groups = [{"params": list(model.parameters())}]
    prepared = []
    for group in param_groups:
        trainable = [p for p in group["params"] if p.requires_grad]
        multiplier = group.get("lr_multiplier", 1.0)
        # Weight decay on biases and norms (vectors) does not help.
        for decays in (True, False):
            members = [p for p in trainable if (p.ndim >= 2) == decays]
            decay = config.weight_decay if decays else 0.0
            if members:
                prepared.append(
                    {"params": members, "lr_multiplier": multiplier, "weight_decay": decay}
                )
    fused = next(model.parameters()).is_cuda
    return torch.optim.AdamW(prepared, lr=config.learning_rate, betas=config.betas, fused=fused)


def _validate(model: nn.Module, validate: Validate) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        return validate()


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _initial_state(config: LoopConfig) -> dict[str, Any]:
    return {
        "step": 0,
        "best": None,
        "best_step": 0,
        "seconds": 0.0,
        "config": _as_json(config),
    }


def _as_json(config: LoopConfig) -> dict[str, Any]:
    """Return the config as it comes back from JSON, where tuples are lists."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain


def _require_same_config(saved: dict[str, Any], config: LoopConfig, folder: Path) -> None:
    """Refuse to resume a run under different settings; more steps are allowed."""
    extendable = config.schedule in ("constant", "inverse-sqrt")
    saved = _as_json(LoopConfig()) | saved  # for settings added after the run was made
    for name, value in _as_json(config).items():
        longer = name == "steps" and extendable and value >= saved[name]
        if saved[name] != value and not longer:
            raise PolyglanceError(
                f"{folder} holds a run with {name} = {saved[name]}, not {value};"
                " train into another folder or remove it"
            )


def _require_finite(values: dict[str, float], step: int) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise PolyglanceError(
                f"{name!r} is {value} at step {step}: lower learning_rate or set grad_clip"
            )


class _Log:
    """A file with one JSON object a line; a resumed run drops lines after its first step."""

    def __init__(self, path: Path, step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        earlier = [line for line in lines if _logged_step(line) <= step]
        path.write_text("".join(line + "\n" for line in earlier), encoding="utf-8")
        self.path = path

    def write(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # cut off when the run was killed
