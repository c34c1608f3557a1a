"""Finding bilingual dictionaries by the languages in their files' names.

``freedict-eng-deu.index`` as Debian installs FreeDict for dictd, ``en-de.txt`` or
``en-de.0-5000.txt`` as MUSE names them, ``panlex-eng-deu.tsv``, or what
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
"""Where Debian's packages ``dict-freedict-*`` put their dictionaries."""

_ENDINGS = (".index", ".txt", ".tsv", ".txt.gz", ".tsv.gz")
_CODES = re.compile(r"(?<![a-z])(?=([a-z]{2,3})[-_]([a-z]{2,3})(?![a-z]))")


def find_dictionaries(locations: Sequence[str | Path]) -> dict[tuple[str, str], list[Path]]:
    """The dictionaries in folders, or named by files or patterns (``dir/en-*.txt``),
    by the languages from and to which they lead."""
    found: dict[tuple[str, str], list[Path]] = {}
    for place in locations:
        for path in _files(Path(place).expanduser()):
            languages = languages_in_name(path)
            if languages is not None:
                found.setdefault(languages, []).append(path)
    return found


def languages_in_name(path: Path) -> tuple[str, str] | None:
    """The language of a dictionary's words and that of its translations, by the file's name."""
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
    """Dictionaries from one language to others: those asked for, or all there are.

    Where several files lead to a language, the translations of those found first
    come first. Where none does but one leads back, that is turned around.
    Malformed lines go to ``problems``; without it the first is an error.
    """
    source = normalise_language(source)
    found = find_dictionaries(locations)
    if languages is None:
        ours = {there for here, there in found if here == source}
        languages = sorted(ours | {here for here, there in found if there == source})
    chosen: dict[str, list[Path]] = {}
    for language in map(normalise_language, languages):
        paths = found.get((source, language)) or found.get((language, source))
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
    here, _ = languages_in_name(path) or ("", "")
    return open_dictionary(path, source=source, problems=problems, reverse=here != source)


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(path for path in place.iterdir() if path.name.endswith(_ENDINGS))
    if place.exists():
        return [place]
    named = sorted(place.parent.glob(place.name)) if place.parent.is_dir() else []
    if not named:
        raise PolyglanceError(
            f"{place}: no dictionaries there; install Debian's dict-freedict-eng-deu, for example, "
            "or name a folder of files like en-de.txt"
        )
    return [path for path in named if path.name.endswith(_ENDINGS)]


def _missing(source: str, language: str, places: Sequence[str | Path]) -> str:
    names = [
        get_language(code).english_name if is_language_code(code) else code
        for code in (source, language)
    ]
    return (
        f"no dictionary from {names[0]} to {names[1]} in {', '.join(map(str, places))}: install "
        f"Debian's dict-freedict packages, or name files like {source}-xx.txt with --dictionaries"
    )
