"""The folder of a training run: its recipe, its checkpoints, its report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.config import dump, load
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import atomic_write
from polyglance.training.checkpoints import has_checkpoint as checkpoint_exists
from polyglance.training.distributed import rank
from polyglance.utils.yaml12 import parse

QUERIES = "queries.npz"
"""Ranks of all test queries, by their place in the report: ``test.de.ranks.text_to_image``."""


def require_files(data: Path, *files: str) -> None:
    """Refuse a data folder that lacks some of these files, before anything is computed."""
    if missing := missing_files(data, files):
        raise DataError("; ".join(missing))


def missing_files(data: Path, files: Iterable[str]) -> list[str]:
    """Name the files that do not exist in one sentence; empty if all do."""
    return name_missing(
        [data / name for name in files if not (data / name).exists()],
        "there is no such file: give the folder of the recipe's files as --data, or name other"
        " files in the recipe",
    )


def name_missing(paths: Iterable[Path], problem: str) -> list[str]:
    """Say the same of all paths in one sentence; empty for no paths."""
    names = ", ".join(map(str, dict.fromkeys(paths)))
    return [f"{names}: {problem}"] if names else []


def save_recipe(recipe: Any, system: str, run: Path) -> None:
    """Save the recipe in the run folder; refuse to resume under a different one."""
    path = run / "recipe.yaml"
    if path.exists() and has_checkpoint(run):
        plain = parse(path.read_text(encoding="utf-8"), str(path))
        saved = load(type(recipe), {key: plain[key] for key in plain if key != "system"})
        if replace(saved, loop=recipe.loop) != recipe:  # the loop checks its own settings
            raise PolyglanceError(
                f"{run} holds a run with another recipe ({path}): train into another folder"
            )
    if rank() == 0:
        with atomic_write(path) as file:
            file.write(f"system: {system}\n{dump(recipe)}")


def has_checkpoint(run: Path) -> bool:
    """Return whether a run, or one of its stages, has a checkpoint."""
    return any(checkpoint_exists(folder / "latest") for folder in (run, *run.glob("*/")))


def write_report(report: dict[str, Any], run: Path) -> None:
    """Write ``report.json``, on the first rank alone.

    Arrays, such as the ranks of all test queries, are moved out of the report into
    ``queries.npz``, by their dotted names.
    """
    arrays = _pop_arrays(report)
    if rank() == 0:
        run.mkdir(parents=True, exist_ok=True)
        if arrays:
            partial = run / f"partial-{QUERIES}"
            np.savez_compressed(partial, allow_pickle=False, **arrays)
            os.replace(partial, run / QUERIES)
        with atomic_write(run / "report.json") as file:
            file.write(json.dumps(report, indent=2) + "\n")


def _pop_arrays(report: dict[str, Any], prefix: str = "") -> dict[str, NDArray[Any]]:
    """Take all arrays out of a nested report, and what is empty then."""
    arrays: dict[str, NDArray[Any]] = {}
    for key, value in list(report.items()):
        if isinstance(value, np.ndarray):
            arrays[f"{prefix}{key}"] = report.pop(key)
        elif isinstance(value, dict) and (inner := _pop_arrays(value, f"{prefix}{key}.")):
            arrays |= inner
            if not value:
                del report[key]
    return arrays
