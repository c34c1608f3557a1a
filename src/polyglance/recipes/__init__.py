"""Published settings, one YAML each, and what runs them: corpora, model, training, measurement.

A recipe's file says of which ``kind`` it is. Each kind is a module of a room here with a
function ``run`` that trains and measures by settings, a dataclass of its own or beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from polyglance import yaml12
from polyglance.config import load
from polyglance.errors import PolyglanceError
from polyglance.vision.devices import check_device

FOLDER = Path(__file__).parent

KINDS = {
    "photos": ("polyglance.recipes.mmp.photos", "PhotoRecipe"),
    "features": ("polyglance.recipes.mmp.features", "FeatureRecipe"),
    "words": ("polyglance.recipes.smalr.words", "WordRecipe"),
    "m3p": ("polyglance.recipes.pairs.m3p", "M3PRecipe"),
    "uc2": ("polyglance.recipes.pairs.uc2", "UC2Recipe"),
    "vqa": ("polyglance.recipes.questions.vqa", "VQARecipe"),
}
"""Of each kind its module, imported when one is opened, and the class of settings it takes.

A file that does not say its kind is of the first.
"""


@dataclass(frozen=True)
class Recipe:
    """The settings that a file holds, of a kind."""

    kind: str
    settings: Any

    def run(self, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
        """Train on the data under a folder; returns what was measured, as ``report.json`` has it.

        Under `polyglance.training.distribution.joined` all processes call this together.
        """
        check_device(device)
        module = import_module(KINDS[self.kind][0])
        report: dict[str, Any] = module.run(self.settings, data, out, device=device)
        return report


def recipe_names() -> list[str]:
    """The recipes that come with Polyglance."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: one that comes with Polyglance by name, or any by its path."""
    for path in (FOLDER / f"{name}.yaml", Path(name)):
        if path.is_file():
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
    kind = plain.pop("kind", next(iter(KINDS)))
    if not isinstance(kind, str) or kind not in KINDS:
        raise PolyglanceError(f"{path}: there is no kind {kind!r} of recipe, only {_known()}")
    module, settings = KINDS[kind]
    of_kind = getattr(import_module(module), settings)
    try:
        return Recipe(kind, load(of_kind, plain, changes))
    except PolyglanceError as error:
        raise PolyglanceError(f"{path} (kind {kind}): {error}") from error


def lines(figures: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Figures in figures, as reports have them, for people to read: innermost ones in a line."""
    for key, value in figures.items():
        place = f"{name}.{key}" if name else key
        if not isinstance(value, Mapping):
            yield f"{place:32} {_figure(value)}"
        elif any(isinstance(inner, Mapping) for inner in value.values()):
            yield from lines(value, place)
        else:
            shown = (f"{inner} {_figure(found)}" for inner, found in value.items())
            yield f"{place:32} {'  '.join(shown)}"


def _figure(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _known() -> str:
    return " and ".join(KINDS)
