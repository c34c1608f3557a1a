"""What a translator is known by: a hash of all that decides on what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from polyglance.weights import sha256_of

_DECISIVE = (".json", ".safetensors", ".bin", ".spm", ".model", ".txt")
_NOTES = ("README.txt", "LICENSE.txt")


def fingerprint(*parts: object) -> str:
    """A hash of some values as they print, and of files by their content."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{part}\n".encode())
    return whole.hexdigest()


def files_fingerprint(files: Iterable[Path]) -> str:
    """A hash of files by name and content, wherever they lie."""
    return fingerprint(*(f"{path.name} {sha256_of(path)}" for path in files))


@lru_cache(maxsize=16)  # a model of many languages is opened for each
def folder_fingerprint(folder: Path) -> str:
    """A hash of the weights, settings and vocabularies in a folder, whatever it is called."""
    return files_fingerprint(
        path
        for path in sorted(folder.iterdir())
        if path.suffix in _DECISIVE and path.name not in _NOTES and path.is_file()
    )
