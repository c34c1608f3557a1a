"""The training loop: one for all models.

It draws a task, sums its losses, steps, logs, validates, keeps the best and the
latest state, and goes on where it was interrupted. What is learned is the
business of tasks (`polyglance.training.mixture`).
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

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.progress import progress
from polyglance.training.checkpoints import load_checkpoint, save_checkpoint
from polyglance.training.distribution import (
    average_gradients,
    rank,
    share_weights,
    wait_for_all,
)
from polyglance.training.mixture import Mixture, seed_step
from polyglance.training.schedules import Schedule, factor

Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class LoopConfig:
    """How long and how fast to train."""

    steps: int = 1000
    learning_rate: float = 2e-4
    schedule: Schedule = "constant"
    warmup: int = 0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None
    """The largest norm of a step's gradient; None for any."""
    accumulate: int = 1
    """Batches of one task whose mean gradient makes a step, where one does not fit into memory."""
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    validate_every: int = 0
    """Steps between validations; 0 for one at the end only."""
    save_every: int = 500
    """Steps between checkpoints to resume from; 0 for none but the last."""
    log_every: int = 20
    """Steps between lines of the log; 0 for one at the end only."""

    def __post_init__(self) -> None:
        check(self, lambda value: value > 0, "a number above 0", "learning_rate")
        check(self, lambda value: value > 0, "a number above 0, or null to clip nothing", "clip")
        check(self, lambda value: value >= 0, "0 or more", "steps", "warmup", "weight_decay")
        check(self, lambda value: value >= 1, "1 or more", "accumulate")
        every = ("validate_every", "save_every", "log_every")
        check(self, lambda value: value >= 0, "a number of steps, or 0", *every)
        check(self, lambda value: 0 <= value < 2**32, "a number from 0 to 4294967295", "seed")
        shares = "two numbers from 0 to less than 1"
        check(self, lambda both: all(0 <= value < 1 for value in both), shares, "betas")


@dataclass(frozen=True)
class Run:
    """What a finished training brings back."""

    steps: int
    best: float | None
    """The highest validation figure; None where nothing was validated."""
    best_step: int
    seconds: float


def train(
    model: nn.Module,
    tasks: Mixture,
    config: LoopConfig,
    folder: Path,
    *,
    validate: Validate | None = None,
    select: str = "score",
    groups: Iterable[dict[str, Any]] | None = None,
    quiet: bool = False,
) -> Run:
    """Train ``model`` and leave its best state in it, by the validation figure ``select``.

    ``folder`` receives ``log.jsonl``, ``latest/`` (to resume from) and ``best/``.
    ``groups`` are parameter groups; ``rate`` in one multiplies its learning rate.
    Under `joined` all processes call this together and end with the same weights.
    """
    share_weights(model)
    optimiser = _optimiser(model, config, groups)
    state = load_checkpoint(folder / "latest", model, optimiser) or _beginning(config)
    _same_settings(state["config"], config, folder)
    state["config"] = _plain(config)
    begin, spent = time.monotonic(), state["seconds"]
    log = _Log(folder / "log.jsonl", state["step"]) if rank() == 0 else None

    def checkpoint(name: str) -> None:
        if rank() == 0:
            state["seconds"] = spent + time.monotonic() - begin
            save_checkpoint(folder / name, model, optimiser, state)

    with progress(
        "training", config.steps, done=state["step"], quiet=quiet or rank() > 0
    ) as advance:
        for step in range(state["step"], config.steps):
            name, values = _step(model, tasks, config, optimiser, step)
            state["step"] = step + 1
            last = state["step"] == config.steps
            advance(1)
            logs, saves, validates = (
                last or _due(every, state["step"])
                for every in (config.log_every, config.save_every, config.validate_every)
            )
            if logs or saves or validates:  # to read the values is to wait for the accelerator
                figures = {key: float(value) for key, value in values.items()}
                _finite(figures, state["step"])
            if log and logs:
                log.write({"step": state["step"], "task": name, **figures})
            if validate and validates:
                measured = _validated(model, validate)
                if log:
                    log.write({"step": state["step"], "validation": measured})
                if measured[select] > (-math.inf if state["best"] is None else state["best"]):
                    state["best"], state["best_step"] = measured[select], state["step"]
                    checkpoint("best")
            if saves:
                checkpoint("latest")
    wait_for_all()
    if state["best"] is not None:
        load_checkpoint(folder / "best", model)
    model.eval()
    seconds = spent + time.monotonic() - begin
    return Run(config.steps, state["best"], state["best_step"], seconds)


def _step(
    model: nn.Module,
    tasks: Mixture,
    config: LoopConfig,
    optimiser: torch.optim.Optimizer,
    step: int,
) -> tuple[str, dict[str, Tensor]]:
    """Learn once; returns the task, its losses and the norm of the gradient."""
    model.train()
    share = factor(config.schedule, step, warmup=config.warmup, steps=config.steps)
    for group in optimiser.param_groups:
        group["lr"] = config.learning_rate * group["rate"] * share
    name, task = tasks.choose(config.seed, step)
    values: dict[str, Tensor] = {}
    for part in range(config.accumulate):
        generator = seed_step(config.seed, step, rank(), part)
        with _precision(model, config):
            losses = task.losses(generator)
        shares = {key: loss.float() / config.accumulate for key, loss in losses.items()}
        torch.stack([*shares.values()]).sum().backward()  # type: ignore[no-untyped-call]
        values = {key: values.get(key, 0.0) + share.detach() for key, share in shares.items()}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    average_gradients(parameters)
    norm = nn.utils.clip_grad_norm_(parameters, config.clip or math.inf)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return name, {**values, "gradient": norm}


def _precision(
    model: nn.Module, config: LoopConfig
) -> contextlib.AbstractContextManager[torch.autocast | None]:
    if config.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(next(model.parameters()).device.type, torch.bfloat16)


def _optimiser(
    model: nn.Module, config: LoopConfig, groups: Iterable[dict[str, Any]] | None
) -> torch.optim.Optimizer:
    groups = [{"params": list(model.parameters())}] if groups is None else list(groups)
    prepared = []
    for group in groups:
        learned = [p for p in group["params"] if p.requires_grad]
        rate = group.get("rate", 1.0)
        # Biases and norms are vectors: pulling them to zero helps nothing.
        for decays in (True, False):
            members = [p for p in learned if (p.ndim >= 2) == decays]
            decay = config.weight_decay if decays else 0.0
            if members:
                prepared.append({"params": members, "rate": rate, "weight_decay": decay})
    fused = next(model.parameters()).is_cuda
    return torch.optim.AdamW(prepared, lr=config.learning_rate, betas=config.betas, fused=fused)


def _validated(model: nn.Module, validate: Validate) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        return validate()


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _beginning(config: LoopConfig) -> dict[str, Any]:
    return {
        "step": 0,
        "best": None,
        "best_step": 0,
        "seconds": 0.0,
        "config": _plain(config),
    }


def _plain(config: LoopConfig) -> dict[str, Any]:
    """The settings as they come back from JSON, where tuples are lists."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain


def _same_settings(saved: dict[str, Any], config: LoopConfig, folder: Path) -> None:
    """A run goes on only under the settings it began with; more steps are allowed."""
    endless = config.schedule in ("constant", "inverse-sqrt")
    saved = _plain(LoopConfig()) | saved  # a setting that is newer than the run
    for name, value in _plain(config).items():
        longer = name == "steps" and endless and value >= saved[name]
        if saved[name] != value and not longer:
            raise PolyglanceError(
                f"{folder} holds a run with {name} = {saved[name]}, not {value};"
                " train into another folder or remove it"
            )


def _finite(values: dict[str, float], step: int) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise PolyglanceError(
                f"{name!r} is {value} at step {step}: lower the learning rate or set clip"
            )


class _Log:
    """One JSON object a line; a resumed run drops what lies beyond the step it resumes from."""

    def __init__(self, path: Path, step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) <= step]
        path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        self.path = path

    def write(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # cut off in the middle when the run was killed
