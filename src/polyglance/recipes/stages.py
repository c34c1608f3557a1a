"""The stages of a training, one after another, and where they begin."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.training.checkpoints import load_checkpoint
from polyglance.training.loop import LoopConfig, Validate, train
from polyglance.training.mixture import Mixture


def run_stage(
    model: nn.Module,
    tasks: Mixture,
    loop: LoopConfig,
    folder: Path,
    *,
    choose: Validate | None = None,
    groups: Iterable[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Train one stage; without ``choose`` it ends where it ends. Returns what to report."""
    finished = train(model, tasks, loop, folder, validate=choose, groups=groups)
    return {
        "steps": finished.steps,
        "best_step": finished.best_step,
        "best_score": finished.best,
        "seconds": round(finished.seconds, 1),
    }


def begin_from(model: nn.Module, folder: Path) -> None:
    """Give a model the weights of a checkpoint, or of a stage's best one, else its latest."""
    for place in (folder / "best", folder / "latest", folder):
        if (place / "state.json").is_file():
            load_checkpoint(place, model)
            return
    raise PolyglanceError(f"{folder}: there is no checkpoint to start from")
