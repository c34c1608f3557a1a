"""The towers of a dual encoder that a run begins with, in ``RUN/towers``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.recipes.common import has_begun
from polyglance.training.distribution import rank, wait_for_all

if TYPE_CHECKING:
    from polyglance.export.towers import Towers


def towers_of(model: str, run: Path) -> Towers:
    """Take a model apart, by its name or folder.

    A run that has begun keeps the towers that it has, whatever became of the model since.
    """
    from polyglance.export.towers import unpack_once, unpacked

    folder = run / "towers"
    if rank() == 0 and not (has_begun(run) and unpacked(folder)):
        unpack_once(model, folder)
    wait_for_all()
    towers = unpacked(folder)
    assert towers is not None
    return towers
