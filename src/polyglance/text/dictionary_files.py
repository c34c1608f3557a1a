"""Find bilingual dictionaries by the languages in their file names.

Such as ``freedict-eng-deu.index`` (FreeDict as Debian installs it for dictd), ``en-de.txt``
or ``en-de.0-5000.txt`` (MUSE), ``panlex-eng-deu.tsv``, or a file that
`polyglance text align` wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from polyglance.errors import PolyglanceError, Problems
from polyglance.languages import get_language, is_language_code, normalise_language
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.utils.progress import progress

FREEDICT_FOLDER = "/usr/share/dictd"
"""Folder of Debian's ``dict-freedict-*`` packages."""

_ENDINGS = (".index", ".txt", ".tsv", ".txt.gz", ".tsv.gz")
_CODES = re.compile(r"(?<![a-z])(?=([a-z]{2,3})[-_]([a-z]{2,3})(?![a-z]))")


def find_dictionaries(locations: Sequence[str | Path]) -> dict[tuple[str, str], list[Path]]:
    """Return the dictionary files by (source, target) language.

    ``locations`` are folders, files or patterns (``dir/en-*.txt``).
    """
    paths_by_pair: dict[tuple[str, str], list[Path]] = {}
    for location in locations:
        for path in _files(Path(location).expanduser()):
            languages = languages_in_name(path)
            if languages is not None:
                paths_by_pair.setdefault(languages, []).append(path)
    return paths_by_pair


def languages_in_name(path: Path) -> tuple[str, str] | None:
    """Return the source and target language in a dictionary's file name, or None."""
    for source, target in _CODES.findall(path.name.lower()):
        if is_language_code(source) and is_language_code(target):
            return normalise_language(source), normalise_language(target)
    return None


def open_dictionaries(
    locations: Sequence[str | Path] = (FREEDICT_FOLDER,),
    *,
    source: str = "en",
    languages: Sequence[str] | None = None,
    problems: Problems | None = None,
    quiet: bool = True,
) -> dict[str, Dictionary]:
    """Open the dictionaries from one language to others.

    Several files of one target are merged, the first file's translations first. A
    target that has only dictionaries back to ``source`` gets these reversed.

    Args:
        locations: Folders, files or patterns.
        source: Language of the words.
        languages: Target languages; None for all that there are.
        problems: Collects malformed lines; without it the first is an error.
        quiet: Show no progress.

    Returns:
        One dictionary per target language.
    """
    source = normalise_language(source)
    paths_by_pair = find_dictionaries(locations)
    if languages is None:
        targets = {second for first, second in paths_by_pair if first == source}
        languages = sorted(targets | {first for first, second in paths_by_pair if second == source})
    chosen: dict[str, list[Path]] = {}
    for language in map(normalise_language, languages):
        paths = paths_by_pair.get((source, language)) or paths_by_pair.get((language, source))
        if paths is None:
            raise PolyglanceError(_missing(source, language, locations))
        chosen[language] = paths
    if not chosen:
        raise PolyglanceError(_missing(source, "any language", locations))
    opened = {}
    with progress("reading dictionaries", sum(map(len, chosen.values())), quiet=quiet) as advance:
        for language, paths in chosen.items():
            parts = []
            for path in paths:
                parts.append(_open(path, source, problems))
                advance(1)
            opened[language] = reduce(or_, parts)
    return opened


def _open(path: Path, source: str, problems: Problems | None) -> Dictionary:
    first, _ = languages_in_name(path) or ("", "")
    return open_dictionary(path, source=source, problems=problems, reverse=first != source)


def _files(location: Path) -> list[Path]:
    if location.is_dir():
        return sorted(path for path in location.iterdir() if path.name.endswith(_ENDINGS))
    if location.exists():
        return [location]
    matches = sorted(location.parent.glob(location.name)) if location.parent.is_dir() else []
    if not matches:
        raise PolyglanceError(
            f"{location}: no dictionaries there; install Debian's dict-freedict-eng-deu, for "
            "example, or name a folder of files like en-de.txt"
        )
    return [path for path in matches if path.name.endswith(_ENDINGS)]


def _missing(source: str, language: str, locations: Sequence[str | Path]) -> str:
    names = [
        get_language(code).english_name if is_language_code(code) else code
        for code in (source, language)
    ]
    return (
        f"no dictionary from {names[0]} to {names[1]} in {', '.join(map(str, locations))}: install "
        f"Debian's dict-freedict packages, or name files like {source}-xx.txt with --dictionaries"
    )
