"""Find, convert or download the folder of some weights by name."""

from __future__ import annotations

import difflib
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.utils.bounded import parse_json
from polyglance.utils.fingerprint import file_sha256
from polyglance.weights.cache import cache_folder, make_once
from polyglance.weights.fetch import check_file, fetch_file, installed_file
from polyglance.weights.registry import ENTRIES, Entry

CONVERSION = 1
"""Version of the converters; increase it when their output changes, to convert anew."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]  # no pickles


def folder(name: str | Path, *, cache: Path | None = None) -> Path:
    """Return the folder of weights, with ``config.json`` and ``model.safetensors``.

    A name of `available` is converted from its package on first use, below ``cache``
    (by default `cache_folder`). Any other name is a local folder, else the id of a model
    on the Hugging Face hub. Write ``./NAME`` for a local folder with a known name.
    """
    if str(name) in ENTRIES:
        return _from_package(ENTRIES[str(name)], cache)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise PolyglanceError(f"{path} holds no weights: it has no config.json")
        return path
    if isinstance(name, str) and _HUB_ID.fullmatch(name) and not name.startswith("."):
        return _from_hub(name)
    matches = difflib.get_close_matches(str(name), ENTRIES, n=1)
    hint = f"did you mean {matches[0]!r}?" if matches else f"known names are {', '.join(ENTRIES)}"
    raise PolyglanceError(f"there are no weights called {str(name)!r} and no such folder: {hint}")


@dataclass(frozen=True, slots=True)
class Status:
    """Known weights, and whether they are available locally."""

    entry: Entry
    state: str
    """``ready`` in the cache, ``installed`` with their package, or ``to fetch``."""
    folder: Path


def available(cache: Path | None = None) -> list[Status]:
    """Return the weights that are known by name, and whether they are available locally."""
    rows = []
    for entry in ENTRIES.values():
        target = _target(entry, cache)
        if _is_complete(target, entry):
            state = "ready"
        else:
            state = "installed" if installed_file(entry) else "to fetch"
        rows.append(Status(entry, state, target))
    return rows


def _from_package(entry: Entry, cache: Path | None) -> Path:
    def make(partial: Path) -> None:
        if any(find_spec(module) is None for module in entry.required_modules):
            raise MissingExtraError(f"converting {entry.name}", "train")
        with tempfile.TemporaryDirectory(prefix="polyglance-") as download:
            source = installed_file(entry) or fetch_file(entry, Path(download))
            check_file(entry, source)
            entry.convert(source, partial)
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path in sorted(partial.iterdir())
        }
        note = json.dumps({**_origin(entry), "files": files}, indent=2)
        (partial / "source.json").write_text(note + "\n", encoding="utf-8")

    target = _target(entry, cache)
    if _is_complete(target, entry) and (damaged := _damaged_file(target)):
        print(f"{damaged} is damaged, its checksum is wrong: converting it again", file=sys.stderr)
        # Without its note the folder counts as not finished, also for other processes.
        (target / "source.json").unlink(missing_ok=True)
    return make_once(target, lambda path: _is_complete(path, entry), make)


def _target(entry: Entry, cache: Path | None) -> Path:
    return (cache_folder() if cache is None else cache) / "weights" / entry.name


def _origin(entry: Entry) -> dict[str, Any]:
    """Return the origin that ``source.json`` records; weights of another one are converted anew."""
    return {
        "name": entry.name,
        "package": entry.package,
        "version": entry.version,
        "file": entry.file,
        "sha256": entry.sha256,
        "licence": entry.licence,
        "conversion": CONVERSION,
    }


def _is_complete(path: Path, entry: Entry) -> bool:
    """Return whether the folder was made from this entry and its files have their full size."""
    try:
        note = parse_json((path / "source.json").read_text(encoding="utf-8"))
        files = note.pop("files")
        return bool(note == _origin(entry)) and all(
            (path / name).stat().st_size == file["bytes"] and "sha256" in file
            for name, file in files.items()
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _damaged_file(folder: Path) -> Path | None:
    """Return the first file of a complete folder that does not have its SHA-256."""
    files = parse_json((folder / "source.json").read_text(encoding="utf-8"))["files"]
    for name, file in files.items():
        path = folder / str(name)
        if _sha256(path, path.stat().st_mtime_ns, path.stat().st_size) != file["sha256"]:
            return path
    return None


@lru_cache(maxsize=64)
def _sha256(path: Path, modified: int, size: int) -> str:
    """Compute the SHA-256 of a file, once a process unless it changes."""
    return file_sha256(path)


def _check_hub_files(folder: Path) -> None:
    """Compare the hub's large files with the SHA-256 by which its cache names them."""
    for path in sorted(folder.iterdir()):
        blob = path.resolve()
        if _SHA256.fullmatch(blob.name) and path.suffix in (".safetensors", ".model"):
            stat = blob.stat()
            if _sha256(blob, stat.st_mtime_ns, stat.st_size) != blob.name:
                raise PolyglanceError(
                    f"{path} is damaged, its checksum is wrong: remove {blob} and try again"
                )


def _from_hub(name: str) -> Path:
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError(f"fetching {name} from the model hub", "train")
    from huggingface_hub import snapshot_download

    try:
        path = Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub's client raises types without a common base
        raise PolyglanceError(
            f"there is no folder {name}, and it could not be downloaded from the model hub "
            f"({type(error).__name__}): check the name and the network, or give a local folder"
        ) from error
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise PolyglanceError(
            f"{name} on the model hub has no config.json with safetensors weights: "
            "convert them to a local folder and give that"
        )
    _check_hub_files(path)
    return path
