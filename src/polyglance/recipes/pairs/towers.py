"""The towers of a dual encoder that a run begins with, in ``RUN/towers``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.training.distribution import rank, wait_for_all

if TYPE_CHECKING:
    from polyglance.export.towers import Towers


def towers_of(model: str, run: Path) -> Towers:
    """Take a model apart, by its name or folder, unless the run has done so before."""
    from polyglance.export.towers import unpack_once

    folder = run / "towers"
    if rank() == 0:
        unpack_once(model, folder)
    wait_for_all()
    return unpack_once(model, folder)
