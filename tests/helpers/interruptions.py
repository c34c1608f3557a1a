"""End a training run in the middle, as a killed process does: nothing more is written."""

from __future__ import annotations

from typing import Any

import pytest

from polyglance.training import loop


def interrupt_before_step(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Raise KeyboardInterrupt when step number ``step`` (from 0) of any run begins, once."""
    original = loop._Training.step

    def interrupted(self: Any, batches: Any, number: int) -> Any:
        if number == step:
            monkeypatch.setattr(loop._Training, "step", original)
            raise KeyboardInterrupt
        return original(self, batches, number)

    monkeypatch.setattr(loop._Training, "step", interrupted)
