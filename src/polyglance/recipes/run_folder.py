"""The folder of a training run: its recipe, its checkpoints, its report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyglance.config import dump, load
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import atomic_write
from polyglance.training.distributed import rank
from polyglance.utils.yaml12 import parse


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
    return any((folder / "latest").exists() for folder in (run, *run.glob("*/")))


def write_report(report: dict[str, Any], run: Path) -> None:
    """Write ``report.json``, on the first rank alone."""
    if rank() == 0:
        with atomic_write(run / "report.json") as file:
            file.write(json.dumps(report, indent=2) + "\n")
