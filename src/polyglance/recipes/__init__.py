"""Published settings, one YAML each, and what runs them: corpora, model, training, measurement."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from polyglance.errors import PolyglanceError

FOLDER = Path(__file__).parent


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
