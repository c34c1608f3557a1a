"""List the files of folders and manifests, lazily, since there may be very many."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyglance.errors import PolyglanceError, Problems, printable
from polyglance.records import read_manifest
from polyglance.search.scan import ScannedFile, is_within, resolve_path, scan
from polyglance.search.store import BadFile


def is_manifest(path: str) -> bool:
    """Return whether a path is a list of files by its suffix."""
    return path.endswith((".jsonl", ".jsonl.gz"))


def resolve_sources(sources: Sequence[str | Path]) -> tuple[str, ...]:
    """Resolve folders, files and manifests; those inside another source are dropped."""
    resolved = sorted({resolve_path(source): source for source in sources}.items())
    for path, source in resolved:
        if not os.path.exists(path):  # noqa: PTH110 (unlike Path.exists it never raises)
            raise PolyglanceError(f"{printable(str(source))}: no such file or folder")
    paths: list[str] = []
    for path, _ in resolved:
        if is_manifest(path) or not any(is_within(path, other) for other in paths):
            paths.append(path)
    return tuple(paths)


def list_files(paths: Sequence[str]) -> Iterator[ScannedFile | BadFile]:
    """Yield the pictures and clips of folders, files and manifests."""
    for path in paths:
        yield from _list_manifest(path) if is_manifest(path) else scan(path)


def source_root(path: str) -> str:
    """Return the folder that must have content for the files of a source to exist."""
    return path if os.path.isdir(path) else Path(path).parent.as_posix()  # noqa: PTH112


def _list_manifest(manifest: str) -> Iterator[ScannedFile | BadFile]:
    """Yield the files that the records of a manifest name, each once."""
    problems = Problems()
    names: set[str] = set()
    for record in read_manifest(manifest, problems):
        name = record.image or record.video
        if not name or name in names:
            continue
        names.add(name)
        if name.lower().startswith(("http://", "https://")):
            yield BadFile(name, "is a web address: download the file first")
            continue
        try:
            empty = True
            for file in scan(resolve_path(Path(manifest).parent / name)):
                empty = False
                yield file
            if empty:
                yield BadFile(name, "has no picture or clip in it")
        except PolyglanceError as error:
            yield BadFile(name, str(error))
    for problem in problems.items:
        yield BadFile(f"{manifest}:{problem.line}", problem.expected)
