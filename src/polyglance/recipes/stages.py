"""The stages of training and how each continues from the one before.

Pre-training may begin with steps of image-text matching alone (``itm_only_steps``). A model
that has never seen an image matches at chance, and the gradient of that loss is a tenth of
what masked words send. Trained together, matching was still at chance after 580 steps of M3P
and 1,520 of UC2; trained alone, it was not after 100.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.training.checkpoints import Fit, load_checkpoint
from polyglance.training.loop import LoopConfig, Validate, train_loop
from polyglance.training.mixture import Mixture


class StageConfig(Protocol):
    """Settings of a stage with its own steps and learning rate."""

    @property
    def steps(self) -> int:
        """The number of steps."""

    @property
    def learning_rate(self) -> float:
        """The learning rate after warm-up."""

    @property
    def warmup(self) -> int:
        """Steps of warm-up."""


class FineTuningConfig(Protocol):
    """Settings of fine-tuning, whose steps may follow from the number of captions."""

    @property
    def batch(self) -> int:
        """Matching pairs a step."""

    @property
    def epochs(self) -> float | None:
        """How often it goes through the captions of its languages; None for the loop's steps."""


class PretrainingConfig(StageConfig, Protocol):
    """Settings of a pre-training that may begin with matching alone."""

    @property
    def itm_only_steps(self) -> int:
        """Steps of matching alone."""


def split_pretraining_steps(stage: PretrainingConfig, *, has_itm: bool) -> tuple[int, int]:
    """Return the steps of matching alone and of all tasks.

    Without matching among the tasks, they take its steps too: the sum stays the same.
    """
    if has_itm:
        return stage.itm_only_steps, stage.steps
    return 0, stage.steps + stage.itm_only_steps


def stage_loop(
    fine_tuning: LoopConfig, stage: StageConfig, *, steps: int | None = None
) -> LoopConfig:
    """Return fine-tuning's loop with a stage's own steps, learning rate and warm-up."""
    return replace(
        fine_tuning,
        steps=stage.steps if steps is None else steps,
        learning_rate=stage.learning_rate,
        warmup=stage.warmup,
    )


def fine_tuning_loop(loop: LoopConfig, config: FineTuningConfig, captions: int) -> LoopConfig:
    """Return the loop of fine-tuning, as long as its epochs take.

    Args:
        loop: as in the recipe.
        config: has the epochs, or none.
        captions: their number, in the languages to fine-tune on.

    Returns:
        The loop with other steps, warm-up and validation in proportion; the same without epochs.
    """
    if config.epochs is None:
        return loop
    steps = max(1, math.ceil(config.epochs * captions / config.batch))
    share = steps / loop.steps
    return replace(
        loop,
        steps=steps,
        warmup=round(share * loop.warmup),
        validate_every=math.ceil(share * loop.validate_every),
    )


def parameter_groups(
    model: nn.Module, encoder: nn.Module, head_lr_multiplier: float
) -> list[dict[str, Any]]:
    """Return two parameter groups: the encoder, and new layers with a multiplied rate."""
    pretrained = set(encoder.parameters())
    new = [parameter for parameter in model.parameters() if parameter not in pretrained]
    return [
        {"params": list(encoder.parameters())},
        {"params": new, "lr_multiplier": head_lr_multiplier},
    ]


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of training, ready to run."""

    name: str
    """Of its folder and of its entry in the report."""
    tasks: Mixture
    loop: LoopConfig
    groups: Sequence[dict[str, Any]] | None = None
    """Parameter groups; None for one."""
    validate: Validate | None = None
    """Chooses the best checkpoint; None keeps the last."""
    measure: Callable[[], dict[str, Any]] | None = None
    """Adds to the report after the stage."""

    def run(self, model: nn.Module, folder: Path) -> dict[str, Any]:
        """Train the model in place, with checkpoints in ``folder``; return the report's entry."""
        result = train_loop(
            model, self.tasks, self.loop, folder, validate=self.validate, param_groups=self.groups
        )
        entry = {
            "steps": result.steps,
            "best_step": result.best_step,
            "best_score": result.best,
            "seconds": round(result.seconds, 1),
        }
        return entry if self.measure is None else entry | self.measure()


def load_stage(model: nn.Module, folder: Path, *, fit: Fit | None = None) -> None:
    """Load a checkpoint, or a stage's best one, else its latest.

    Args:
        model: changed in place.
        folder: of the stage or checkpoint.
        fit: adapts the loaded tensors to the model.
    """
    for checkpoint in (folder / "best", folder / "latest", folder):
        if (checkpoint / "state.json").is_file():
            remedy = "start from a run of the same system with the same settings"
            load_checkpoint(checkpoint, model, way_out=remedy, fit=fit)
            return
    raise PolyglanceError(f"{folder}: there is no checkpoint to start from")
