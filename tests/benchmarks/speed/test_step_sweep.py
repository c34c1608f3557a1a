"""The sweep of step times varies one thing at a time, and survives what does not fit."""

from __future__ import annotations

import pytest
import torch

from benchmarks.speed import step_sweep
from benchmarks.speed.cross_encoder_step import Sizes, Stepper
from benchmarks.speed.step_sweep import Setting, Sweep


def test_one_thing_varies_at_a_time() -> None:
    settings = [setting for _, _, setting in Sweep.full().settings()]
    assert len(settings) == 4 + 5 + 4
    assert settings[0] == Setting(length=8)
    assert settings[-1] == Setting(languages=100)
    assert settings.count(Setting()) == 3


def test_a_batch_that_does_not_fit_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Stepper.seconds

    def seconds(self: Stepper, name: str, steps: int = 1) -> float:
        if self.variant.tasks[name].batch > 2:  # type: ignore[attr-defined]
            raise torch.OutOfMemoryError
        return timed(self, name, 1)

    monkeypatch.setattr(Stepper, "seconds", seconds)
    sweep = Sweep(Setting(length=6, batch=2, languages=2), {"batch": (2, 3), "languages": (1,)})
    rates, memory = step_sweep.run_sweep(sweep, Sizes.tiny(), ("packed",), 1, "cpu")
    by_batch = rates["packed"]["batch"]
    assert by_batch["2"] is not None
    assert by_batch["2"] > 0
    assert by_batch["3"] is None
    assert set(rates["packed"]["languages"]) == set(memory["packed"]["languages"]) == {"1"}
