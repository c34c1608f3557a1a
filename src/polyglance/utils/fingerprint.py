"""Hashes by which caches know what they were made from.

`fingerprint` is for runs: settings, arrays, files, and the code that made a cached file.
`digest` and its relatives are for models: everything that decides on their output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_MODEL_SUFFIXES = (".json", ".safetensors", ".bin", ".spm", ".model", ".txt")
_NOT_MODEL = ("README.txt", "LICENSE.txt")


def fingerprint(*parts: Any) -> str:
    """Return 16 hex digits that identify settings, arrays, files, folders and modules.

    A module stands for its source code, so that files cached by older code are made anew.
    """
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(b"\0part\0")
        for chunk in _chunks(part):
            sha256.update(chunk)
    return sha256.hexdigest()[:16]


def file_stats(path: Path) -> list[tuple[str, int, int]]:
    """Return (name, size, mtime in ns) of a file or of each file in a folder.

    A stand-in for the content where reading it all would take too long.
    """
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in _files(path)]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(*values: object) -> str:
    """Return the SHA-256 of some values as they print."""
    sha256 = hashlib.sha256()
    for value in values:
        sha256.update(f"{value}\n".encode())
    return sha256.hexdigest()


def digest_files(files: Iterable[Path]) -> str:
    """Return the SHA-256 of files by name and content, whatever folders they are in."""
    return digest(*(f"{path.name} {file_sha256(path)}" for path in files))


@lru_cache(maxsize=16)  # a multilingual model is opened once for each language pair
def digest_model_folder(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights, settings and vocabularies."""
    return digest_files(
        path
        for path in sorted(folder.iterdir())
        if path.suffix in _MODEL_SUFFIXES and path.name not in _NOT_MODEL and path.is_file()
    )


def _chunks(part: Any) -> Iterable[bytes]:
    if isinstance(part, ModuleType):
        assert part.__file__ is not None
        yield Path(part.__file__).read_bytes()
    elif isinstance(part, Path):
        for file in _files(part):
            yield str(file.relative_to(part)).encode()
            with file.open("rb") as content:
                yield hashlib.file_digest(content, "sha256").digest()
    elif isinstance(part, np.ndarray):
        yield f"{part.dtype} {part.shape}".encode()
        yield np.ascontiguousarray(part).tobytes()
    else:
        yield json.dumps(part, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return what JSON can hold in place of a dataclass, a mapping or a path."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot fingerprint a {type(value).__name__}")


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
