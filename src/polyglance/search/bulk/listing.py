"""Which files folders and manifests name, one after another, however many they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyglance.errors import PolyglanceError, Problems, printable
from polyglance.records import read_manifest
from polyglance.search.store import BadFile
from polyglance.search.walking import Candidate, as_place, is_within, walk


def is_manifest(place: str) -> bool:
    """Whether a place is a list of files by its name."""
    return place.endswith((".jsonl", ".jsonl.gz"))


def places_of(sources: Sequence[str | Path]) -> tuple[str, ...]:
    """Folders, files and manifests as a library names them; none that lies in another."""
    places = sorted({as_place(source): source for source in sources}.items())
    for place, source in places:
        if not os.path.exists(place):  # noqa: PTH110 (unlike Path.exists it never raises)
            raise PolyglanceError(f"{printable(str(source))}: no such file or folder")
    kept: list[str] = []
    for place, _ in places:
        if is_manifest(place) or not any(is_within(place, other) for other in kept):
            kept.append(place)
    return tuple(kept)


def listed(places: Sequence[str]) -> Iterator[Candidate | BadFile]:
    """The pictures and clips of all places."""
    for place in places:
        yield from _of_manifest(place) if is_manifest(place) else walk(place)


def seen_from(place: str) -> str:
    """The folder that must be there for the files of a place to be there."""
    return place if os.path.isdir(place) else Path(place).parent.as_posix()  # noqa: PTH112


def _of_manifest(place: str) -> Iterator[Candidate | BadFile]:
    """What the records of a manifest show, each file once."""
    problems = Problems()
    seen: set[str] = set()
    for record in read_manifest(place, problems):
        name = record.image or record.video
        if not name or name in seen:
            continue
        seen.add(name)
        if name.lower().startswith(("http://", "https://")):
            yield BadFile(name, "addresses are not fetched: download the pictures first")
            continue
        try:
            nothing = True
            for file in walk(as_place(Path(place).parent / name)):
                nothing = False
                yield file
            if nothing:
                yield BadFile(name, "is no picture or clip by its name")
        except PolyglanceError as error:
            yield BadFile(name, str(error))
    for problem in problems.found:
        yield BadFile(f"{place}:{problem.line}", problem.expected)
