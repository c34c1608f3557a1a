"""Short names for what runs share, by everything that it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from polyglance.config import as_plain


def fingerprint(*parts: Any) -> str:
    """A digest of settings, arrays, and what files, folders and modules hold.

    Modules stand for the code in them: what older code made is another thing.
    """
    found = hashlib.sha256()
    for part in parts:
        found.update(b"\0part\0")
        for piece in _pieces(part):
            found.update(piece)
    return found.hexdigest()[:16]


def stamps(path: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a file or of a folder's files, where reading all takes long."""
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in _files(path)]


def _pieces(part: Any) -> Iterable[bytes]:
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
        yield json.dumps(as_plain(part)).encode()


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
