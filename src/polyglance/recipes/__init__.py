"""Recipes: published training settings, one YAML each, in a folder for each system.

A YAML names its ``system``. A system is a folder here with ``config.py`` (a dataclass of its
settings) and ``train.py`` (a function ``train`` that builds data, model and tasks, runs the
stages and evaluates), and one line in `SYSTEMS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from polyglance.config import load
from polyglance.errors import PolyglanceError
from polyglance.utils import yaml12
from polyglance.vision.devices import check_device, keep_freed_memory

FOLDER = Path(__file__).parent

SYSTEMS = {
    "uc2": ("uc2.config.UC2Recipe", "uc2.train.train"),
    "m3p": ("m3p.config.M3PRecipe", "m3p.train.train"),
    "mmp": ("mmp.config.MMPRecipe", "mmp.train.train"),
    "mmp_photos": ("mmp.config.MMPPhotoRecipe", "mmp.train_photos.train"),
    "fine_tune": ("fine_tune.config.FineTuneRecipe", "fine_tune.train.train"),
    "smalr": ("smalr.config.SMALRRecipe", "smalr.train.train"),
    "vqa": ("vqa.config.VQARecipe", "vqa.train.train"),
    "compact_reader": (
        "compact_reader.config.ReaderRecipe",
        "compact_reader.train.train",
    ),
    "caption_translator": (
        "caption_translator.config.CaptionTranslatorRecipe",
        "caption_translator.train.train",
    ),
}
"""The settings and the training function of each system, imported when one is opened."""


@dataclass(frozen=True)
class Recipe:
    """A system and its settings."""

    system: str
    settings: Any

    def train(self, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
        """Train and evaluate.

        Under `polyglance.training.distributed.init_distributed` all processes call this
        together.

        Args:
            data: the data folder.
            run: the run folder; an interrupted run continues.
            device: a device of torch.

        Returns:
            The report, as in ``report.json``.
        """
        check_device(device)
        with keep_freed_memory() if device == "cpu" else nullcontext():
            report: dict[str, Any] = _import(SYSTEMS[self.system][1])(
                self.settings, data, run, device=device
            )
        return report


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with Polyglance."""
    return sorted(path.stem for path in FOLDER.glob("*/*.yaml"))


def find_recipe(name: str | Path) -> Path:
    """Return a recipe's file, by its name here or by any path."""
    for path in (*FOLDER.glob("*/*.yaml"), Path(name)):
        if path.is_file() and (path == Path(name) or path.stem == str(name)):
            return path
    near = get_close_matches(str(name), recipe_names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(recipe_names())}"
    raise PolyglanceError(f"there is no recipe {str(name)!r} and no such file: {hint}")


def open_recipe(name: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Read a recipe by name or path, changed by ``key.key=value`` texts."""
    path = find_recipe(name)
    try:
        plain = yaml12.parse(path.read_text(encoding="utf-8-sig"), str(path)) or {}
    except UnicodeDecodeError as error:
        raise PolyglanceError(f"{path}: cannot be read (not UTF-8 text)") from error
    if not isinstance(plain, dict):
        raise PolyglanceError(f"{path}: expected a mapping of settings")
    system = plain.pop("system", None)
    if not isinstance(system, str) or system not in SYSTEMS:
        known = ", ".join(SYSTEMS)
        raise PolyglanceError(f"{path}: system must be one of {known}, not {system!r}")
    try:
        return Recipe(system, load(_import(SYSTEMS[system][0]), plain, changes))
    except PolyglanceError as error:
        raise PolyglanceError(f"{path} (system {system}): {error}") from error


def report_lines(report: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Format a nested report for people, the innermost figures on one line."""
    for key, value in report.items():
        name = f"{prefix}.{key}" if prefix else key
        if not isinstance(value, Mapping):
            yield f"{name:32} {_format(value)}"
        elif any(isinstance(inner, Mapping) for inner in value.values()):
            yield from report_lines(value, name)
        else:
            figures = (f"{inner} {_format(figure)}" for inner, figure in value.items())
            yield f"{name:32} {'  '.join(figures)}"


def _format(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _import(place: str) -> Any:
    """Import ``module.name`` below this package."""
    module, _, name = place.rpartition(".")
    return getattr(import_module(f"{__name__}.{module}"), name)
