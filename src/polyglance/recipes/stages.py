"""The stages of a training, one after another, and where they begin.

Pre-training may begin with steps of matching alone (``matching_first``). To a model that
has never seen a picture, whether a pair belongs together is a coin's toss, and the
gradient of that is a tenth of what hidden words send: beside them it was a toss still
after 580 steps of M3P and 1,520 of UC2, alone it no longer was after 100.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.training.checkpoints import Fit, load_checkpoint
from polyglance.training.loop import LoopConfig, Validate, train
from polyglance.training.mixture import Mixture


class Stage(Protocol):
    """The settings of a stage that has a length and rate of its own."""

    @property
    def steps(self) -> int:
        """How long it is."""

    @property
    def learning_rate(self) -> float:
        """How fast it learns."""

    @property
    def warmup(self) -> int:
        """Steps until it learns that fast."""


class BeginsWithMatching(Stage, Protocol):
    """The settings of a pre-training that may begin with matching alone."""

    @property
    def matching_first(self) -> int:
        """For how many steps it does."""


def matching_steps(stage: BeginsWithMatching, *, matches: bool) -> tuple[int, int]:
    """How long matching alone is learned, and then all tasks, of which matching may be none.

    Then the others have its steps: whatever is left out, there are as many in all.
    """
    if matches:
        return stage.matching_first, stage.steps
    return 0, stage.steps + stage.matching_first


def stage_loop(after: LoopConfig, stage: Stage, *, steps: int | None = None) -> LoopConfig:
    """A stage's own length and rate, and all else as the stage after it."""
    return replace(
        after,
        steps=stage.steps if steps is None else steps,
        learning_rate=stage.learning_rate,
        warmup=stage.warmup,
    )


def learning_faster(model: nn.Module, encoder: nn.Module, rate: float) -> list[dict[str, Any]]:
    """Parameter groups: the encoder, and what is new beside it, which learns so much faster."""
    known = set(encoder.parameters())
    new = [parameter for parameter in model.parameters() if parameter not in known]
    return [{"params": list(encoder.parameters())}, {"params": new, "rate": rate}]


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


def begin_from(model: nn.Module, folder: Path, *, fit: Fit | None = None) -> None:
    """Give a model the weights of a checkpoint, or of a stage's best one, else its latest.

    ``fit`` makes them those of this model, where it is not quite the same.
    """
    for place in (folder / "best", folder / "latest", folder):
        if (place / "state.json").is_file():
            way_out = "start from a run of the same kind of model with the same settings"
            load_checkpoint(place, model, way_out=way_out, fit=fit)
            return
    raise PolyglanceError(f"{folder}: there is no checkpoint to start from")
