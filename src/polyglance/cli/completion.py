"""What the shell offers after Tab: languages, models, libraries, recipes and formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

Offer = tuple[str, str]
"""A completion, and what the shell says about it."""


def complete_language(incomplete: str) -> list[Offer]:
    """Offer codes of languages, and names in English once two letters are typed."""
    from polyglance.languages import known_languages

    typed, known = incomplete.lower(), known_languages()
    codes = [(one.code, one.english_name) for one in known if one.code.startswith(typed)]
    names = [(one.english_name.lower(), one.code) for one in known if len(typed) > 1]
    return [*codes, *(name for name in names if name[0].startswith(typed) and " " not in name[0])]


def complete_languages(incomplete: str) -> list[Offer]:
    """Offer codes after the last comma: ``en,d`` becomes ``en,de``."""
    before, comma, last = incomplete.rpartition(",")
    chosen = {code.strip() for code in before.split(",")}
    return [
        (f"{before}{comma}{code}", name)
        for code, name in complete_language(last)
        if code not in chosen
    ]


def complete_model(incomplete: str) -> list[Offer]:
    """Offer the included models, and folders: those of models first."""
    from polyglance.encoders.model_folder import shipped_models

    offers = [(name, "included model") for name in shipped_models() if name.startswith(incomplete)]
    models = ("model.json", "config.json", "modules.json", "open_clip_config.json")
    folders = list(_paths(incomplete, Path.is_dir))
    folders.sort(key=lambda folder: not any((folder / name).is_file() for name in models))
    return [*offers, *((_typed(folder, incomplete), "folder") for folder in folders)]


def complete_library(incomplete: str) -> list[Offer]:
    """Offer files of libraries, and folders to go into."""
    if "://" in incomplete:
        return []
    return [
        (_typed(path, incomplete), "folder" if path.is_dir() else "library")
        for path in _paths(incomplete, lambda p: p.suffix == ".polyglance" or p.is_dir())
    ]


def complete_recipe(incomplete: str) -> list[Offer]:
    """Offer the names of recipes, and YAML files."""
    folder = Path(__file__).parent.parent / "recipes"
    names = sorted(path.stem for path in folder.glob("*/*.yaml"))
    offers = [(name, "recipe") for name in names if name.startswith(incomplete)]
    files = _paths(incomplete, lambda p: p.suffix in (".yaml", ".yml") or p.is_dir())
    return [*offers, *((_typed(path, incomplete), "file") for path in files)]


def complete_format(incomplete: str) -> list[Offer]:
    """Offer the dataset formats of ``polyglance data formats``."""
    from polyglance.data.readers import FORMATS

    return [(name, entry.help) for name, entry in FORMATS.items() if name.startswith(incomplete)]


def _paths(incomplete: str, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield the paths that begin with what is typed, hidden ones only if that is typed, too."""
    head, name = os.path.split(os.path.expanduser(incomplete))  # noqa: PTH111 ("a/" and "a" differ)
    try:
        entries = sorted(Path(head or ".").iterdir())
        for path in entries:
            hidden = path.name.startswith(".") and not name.startswith(".")
            if path.name.startswith(name) and not hidden and wanted(path):
                yield path
    except OSError:  # no such folder, or not ours to read: nothing to offer
        return


def _typed(path: Path, incomplete: str) -> str:
    """Return a path as it was begun, with ~, and with a slash after a folder."""
    head = os.path.split(incomplete)[0]
    name = path.name + ("/" if path.is_dir() else "")
    return os.path.join(head, name) if head else name  # noqa: PTH118 (keeps "./")
