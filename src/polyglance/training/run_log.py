"""The logs of a run: ``log.jsonl``, ``speed.jsonl`` and event files for TensorBoard.

``log.jsonl`` holds losses and validations, and is the same whether a run was interrupted or
not. How fast it went is in ``speed.jsonl``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyglance.errors import PolyglanceError
from polyglance.training.event_files import EventFile


class RunLog:
    """Writes the logs in a run folder; a resumed run drops what comes after its first step."""

    def __init__(self, folder: Path, step: int, *, tensorboard: bool = False) -> None:
        """Open the logs.

        Args:
            folder: The run folder.
            step: Steps that the run has made.
            tensorboard: Also write event files, to ``tensorboard`` in the run folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        for name in ("log.jsonl", "speed.jsonl"):
            _truncate(folder / name, step)
        self._events = EventFile(folder / "tensorboard", step) if tensorboard else None

    def write_losses(self, step: int, task: str, values: Mapping[str, float]) -> None:
        """Log the losses of a step."""
        self._append("log.jsonl", {"step": step, "task": task, **values})
        self._write_events(step, {f"{task}/{name}": value for name, value in values.items()})

    def write_validation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log a validation."""
        self._append("log.jsonl", {"step": step, "validation": metrics})
        self._write_events(step, {f"validation/{name}": value for name, value in metrics.items()})

    def write_speed(self, step: int, rates: Mapping[str, float]) -> None:
        """Log how fast the steps up to this one were."""
        self._append("speed.jsonl", {"step": step, **rates})
        self._write_events(step, {f"speed/{name}": value for name, value in rates.items()})

    def _append(self, name: str, entry: Mapping[str, Any]) -> None:
        with _writing(self.folder / name) as path, path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def _write_events(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._events is not None:
            with _writing(self._events.path):
                self._events.write(step, scalars)


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    try:
        yield path
    except OSError as error:
        raise PolyglanceError(
            f"cannot write to {path} ({error.strerror}): free disk space and run the same command"
            " again, which resumes from the last checkpoint"
        ) from error


def _truncate(path: Path, step: int) -> None:
    """Drop the lines after a step, and those cut off when the run was killed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    earlier = [line for line in lines if _logged_step(line) <= step]
    path.write_text("".join(line + "\n" for line in earlier), encoding="utf-8")


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
