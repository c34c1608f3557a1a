"""Settings of the training loop, which recipes have under ``loop``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.training.parallel import Sharding
from polyglance.training.schedules import Schedule


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
    ema_decay: float | None = None
    """Exponential moving average of the weights, which is evaluated, saved and exported instead
    of them: the share that stays at each step, such as 0.999; None for no average."""
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    """Compute the encoder's layers again in the backward pass, instead of keeping what they
    computed: a third more time, much less memory."""
    compile: bool | None = None
    """Fuse the work between matrix products with ``torch.compile``, which takes half a minute at
    first; None does so on CUDA for a thousand steps or more."""
    sharding: Sharding = "ddp"
    """On several processes: each has the whole model (``ddp``), or a part of it (``fsdp``)."""
    seed: int = 0
    validate_every: int = 0
    """Steps between validations; 0 for one at the end only."""
    patience: int | None = None
    """Early stopping: validations without a better score after which training ends; None to
    make all steps."""
    save_every: int = 500
    """Steps between checkpoints to resume from; 0 for one at the end only."""
    keep_checkpoints: int = 2
    """How many of these to keep: a damaged one gives way to the one before."""
    log_every: int = 20
    """Steps between log lines; 0 for one at the end only."""
    tensorboard: bool = False
    """Also log to event files, which TensorBoard shows."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")
        validate_fields(
            self, lambda value: value > 0, "a number above 0, or null for none", "grad_clip"
        )
        validate_fields(
            self, lambda value: value >= 0, "0 or more", "steps", "warmup", "weight_decay"
        )
        counts = ("grad_accumulation_steps", "keep_checkpoints", "patience")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        every = ("validate_every", "save_every", "log_every")
        validate_fields(self, lambda value: value >= 0, "a number of steps, or 0", *every)
        validate_fields(
            self, lambda value: 0 <= value < 2**32, "a number from 0 to 4294967295", "seed"
        )
        bounds = "two numbers from 0 to less than 1"
        validate_fields(self, lambda both: all(0 <= value < 1 for value in both), bounds, "betas")
        share = "a number above 0 and below 1, or null for none"
        validate_fields(self, lambda value: 0 < value < 1, share, "ema_decay")

    def compiles(self, device: torch.device) -> bool:
        """Return whether to compile the layers of a model on this device."""
        if self.compile is None:
            return device.type == "cuda" and self.steps >= 1000
        return self.compile


_MAY_CHANGE = frozenset(
    {
        "compile",
        "gradient_checkpointing",
        "sharding",
        "save_every",
        "keep_checkpoints",
        "log_every",
        "tensorboard",
    }
)
"""Settings that leave the weights as they are: a run may go on with others."""


def as_json(config: LoopConfig) -> dict[str, Any]:
    """Return the config as it comes back from JSON, where tuples are lists."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain


def require_same_config(saved: dict[str, Any], config: LoopConfig, folder: Path) -> None:
    """Refuse to resume a run under different settings; more steps are allowed."""
    extendable = config.schedule in ("constant", "inverse-sqrt")
    saved = as_json(LoopConfig()) | saved  # for settings added after the run was made
    for name, value in as_json(config).items():
        longer = name == "steps" and extendable and value >= saved[name]
        if saved[name] != value and not longer and name not in _MAY_CHANGE:
            raise PolyglanceError(
                f"{folder} holds a run with {name} = {saved[name]}, not {value};"
                " train into another folder"
            )
