"""The checks of ``polyglance doctor``, each a line with what to do about it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from polyglance.errors import PolyglanceError, error_reason
from polyglance.version import __version__

if TYPE_CHECKING:
    from polyglance.encoders import Encoder

Status = Literal["ok", "missing", "warning", "failed"]

MIN_PYTHON = (3, 11)
MIN_SQLITE = (3, 31)
MIN_FREE_MB, LOW_FREE_MB = 50, 1000
EXPECTED = {
    "text": (0.531, 0.193, 0.747, 0.095),
    "picture": (0.480, 0.409, 0.265, -0.392),
}
"""What `signature` gives for the included model's vectors of `TEXT` and `sample_picture`."""
TOLERANCE = 0.05
"""Processors and versions of ONNX Runtime round differently by less, other models by more."""
TEXT = "a dog on the beach"

_PURPOSES = {
    "train": "training, cross-encoders, CLIP and SigLIP",
    "serve": "`polyglance serve`",
    "video": "clips, by FFmpeg's libraries",
    "photos": "HEIC and RAW pictures, clips",
    "ocr": "text inside pictures",
    "index": "large libraries",
    "evaluate": "BLEU",
    "translate": "translating captions",
    "open-clip": "models of open_clip",
    "sentence-transformers": "models of sentence-transformers",
    "postgres": "libraries on PostgreSQL",
    "ray": "indexing on many machines",
    "scale": "PostgreSQL and Ray",
    "parquet": "Parquet files",
    "stream": "training from remote storage",
    "segment": "words of Chinese and Japanese",
    "regions": "regions in HDF5 and LMDB",
}
_FOR_DEVELOPERS = ("dev", "docs")


class Check(NamedTuple):
    """One line of the report."""

    name: str
    status: Status
    detail: str
    fix: str = ""
    """What to do, if anything."""


def run_checks(library: str | Path | None = None) -> Iterator[Check]:
    """Yield all checks, those of a library only if one is named."""
    for check in (_python, _packages, _sqlite, _threads, _model):
        yield from _guarded(check)
    yield from _guarded(_extras)
    for check in (_decoders, _accelerator, _folders, _terminal):
        yield from _guarded(check)
    if library is not None:
        yield from _guarded(lambda: _library(library), "library")


def signature(vector: object) -> tuple[float, ...]:
    """Return four numbers that change with a vector: its products with waves."""
    import numpy as np

    values = np.asarray(vector, np.float64)
    waves = np.cos(np.arange(1, 5)[:, None] * np.arange(len(values))[None, :])
    return tuple(float(number) for number in waves @ values)


def sample_picture() -> object:
    """Return the pixels of a picture that needs no file: two ramps of colour."""
    import numpy as np

    ramp = np.linspace(0, 255, 64, dtype=np.float32)
    red, green = np.tile(ramp, (64, 1)), np.tile(ramp[:, None], (1, 64))
    return np.stack([red, green, np.full((64, 64), 96, np.float32)], -1).astype(np.uint8)


def check_vectors(encoder: Encoder) -> str | None:
    """Return what is wrong with the included model's vectors, or None."""
    [text] = encoder.encode_texts([TEXT])
    [picture] = encoder.encode_pictures([sample_picture()])  # type: ignore[list-item]
    for kind, vector in (("text", text), ("picture", picture)):
        found = signature(vector)
        if not all(abs(a - b) < TOLERANCE for a, b in zip(found, EXPECTED[kind], strict=True)):
            numbers = ", ".join(f"{number:.3f}" for number in found)
            return f"the vector of a {kind} is not the expected one ({numbers})"
    return None


def _guarded(check: Callable[[], Iterator[Check]], name: str | None = None) -> Iterator[Check]:
    """Yield checks; a check that raises has failed, whatever it raised."""
    try:
        yield from check()
    except Exception as error:  # a report must not end at the first thing that is broken
        detail = " ".join(error_reason(error).split())[:300]
        title = name or check.__name__.strip("_")
        yield Check(title, "failed", detail, "" if isinstance(error, PolyglanceError) else _REPAIR)


_REPAIR = "pip install --upgrade --force-reinstall polyglance"


def _python() -> Iterator[Check]:
    version = platform.python_version()
    detail = f"{version} on {platform.system()} {platform.machine()}, Polyglance {__version__}"
    if sys.version_info[:2] < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        yield Check("Python", "failed", detail, f"install Python {wanted} or newer")
    else:
        yield Check("Python", "ok", detail)


def _packages() -> Iterator[Check]:
    needed = _requirements().get("", {})
    if not needed:
        yield Check(
            "packages", "warning", "Polyglance is used without being installed", "pip install ."
        )
        return
    problems = _problems(needed)
    if problems:
        yield Check("packages", "failed", "; ".join(problems), "pip install --upgrade polyglance")
        return
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in sorted(needed))
    yield Check("packages", "ok", versions)


def _extras() -> Iterator[Check]:
    present = []
    for extra, needed in sorted(_requirements().items()):
        if extra in ("", *_FOR_DEVELOPERS):
            continue
        problems = _problems(needed)
        if not problems:
            present.append(extra)
            continue
        purpose = f"{_PURPOSES[extra]}; " if extra in _PURPOSES else ""
        fix = f"pip install 'polyglance[{extra}]'"
        yield Check(f"extra {extra}", "missing", purpose + "; ".join(problems), fix)
    if present:
        yield Check("extras", "ok", ", ".join(present))


def _requirements() -> dict[str, dict[str, str]]:
    """Return the least version of each required package, by extra; "" for the essential ones."""
    try:
        lines = metadata.requires("polyglance") or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        match = re.match(r"(?P<name>[\w.-]+)(\[[^]]*\])?\s*(?P<rest>.*)", line)
        assert match is not None
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", match["rest"])
        least = re.search(r">=\s*([\d.]+)", match["rest"])
        group = found.setdefault(extra[1] if extra else "", {})
        group[match["name"]] = least[1] if least else "0"
    return found


def _problems(needed: Mapping[str, str]) -> list[str]:
    """Return what is missing or too old."""
    problems = []
    for name, least in sorted(needed.items()):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed")
            continue
        if _numbers(version) < _numbers(least):
            problems.append(f"{name} {version} is older than {least}")
    return problems


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _sqlite() -> Iterator[Check]:
    known = sqlite3.sqlite_version_info >= MIN_SQLITE
    wanted = ".".join(map(str, MIN_SQLITE))
    fix = "" if known else f"install a Python with SQLite {wanted} or newer"
    yield Check("SQLite", "ok" if known else "failed", sqlite3.sqlite_version, fix)


def _threads() -> Iterator[Check]:
    from polyglance.utils.cores import available_cores

    cores, own = available_cores(), os.environ.get("OMP_NUM_THREADS")
    detail = f"{cores} of {os.cpu_count()} cores may be used"
    yield Check("threads", "ok", detail + (f"; OMP_NUM_THREADS={own} limits them" if own else ""))


def _model() -> Iterator[Check]:
    from polyglance.encoders import load
    from polyglance.encoders.model_folder import DEFAULT_MODEL, ModelFolder

    folder = ModelFolder.open()
    for name in folder.description.files:
        folder.read_file(name)  # which compares checksums
    encoder = load()
    problem = check_vectors(encoder)
    if problem is not None:
        yield Check("model", "failed", f"{DEFAULT_MODEL}: {problem}", _REPAIR)
        return
    detail = f"{DEFAULT_MODEL} {folder.description.version}, {encoder.width} dimensions"
    yield Check("model", "ok", f"{detail}; checksums and vectors are as expected")


def _decoders() -> Iterator[Check]:
    """Open the libraries that decode photos and clips of phones, where they are installed."""
    can, broken = ["JPEG, PNG, WebP, AVIF (Pillow)"], []
    for kinds, package, module in (
        ("HEIC", "pi-heif", "pi_heif"),
        ("RAW", "rawpy", "rawpy"),
        ("clips", "av", "av"),
    ):
        if find_spec(module) is None:
            continue  # its extra is listed as missing
        try:
            import_module(module)
            can.append(f"{kinds} ({package} {metadata.version(package)})")
        except Exception as error:  # such as a library of the system that it was not built for
            broken.append(f"{kinds}: {package} cannot be opened ({error_reason(error)})")
    fix = "pip install --upgrade --force-reinstall 'polyglance[photos]'" if broken else ""
    yield Check("decoders", "warning" if broken else "ok", "; ".join([*broken, *can]), fix)


def _accelerator() -> Iterator[Check]:
    import onnxruntime

    others = [
        name.removesuffix("ExecutionProvider")
        for name in onnxruntime.get_available_providers()
        if name not in ("CPUExecutionProvider", "AzureExecutionProvider")  # the latter is remote
    ]
    detail = f"ONNX Runtime {onnxruntime.__version__} on CPU"
    detail += f" and {', '.join(others)}" if others else ""
    if find_spec("torch") is not None:
        import torch

        if torch.accelerator.is_available():
            kind = torch.accelerator.current_accelerator()
            assert kind is not None
            name = torch.cuda.get_device_name() if kind.type == "cuda" else kind.type
            detail += f"; torch {torch.__version__} on {name} (--device {kind.type})"
        else:
            detail += f"; torch {torch.__version__} on CPU"
    yield Check("accelerator", "ok", detail)


def _folders() -> Iterator[Check]:
    from polyglance.search.default_place import LIBRARY_VARIABLE, default_library
    from polyglance.weights.cache import cache_folder

    yield _writable("cache folder", cache_folder(), "POLYGLANCE_CACHE")
    place = default_library()
    if isinstance(place, Path) or "://" not in place:
        yield _writable("default library", Path(place).expanduser().parent, LIBRARY_VARIABLE)


def _writable(name: str, folder: Path, variable: str) -> Check:
    """Check that files can be made in a folder, or in the nearest one above it that exists."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    fix = f"make it writable, or set {variable} to another place"
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
        free = shutil.disk_usage(existing).free // 2**20
    except OSError as error:
        return Check(name, "failed", f"{folder} cannot be written ({error_reason(error)})", fix)
    detail = f"{folder}, {free / 1024:,.1f} GiB free"
    if free < MIN_FREE_MB:
        return Check(name, "failed", detail, f"free some space, or set {variable}")
    if free < LOW_FREE_MB:
        return Check(name, "warning", detail, f"free some space, or set {variable}")
    return Check(name, "ok", detail)


def _terminal() -> Iterator[Check]:
    encoding = (sys.stdout.encoding or "ascii").lower()
    if encoding.replace("-", "") == "utf8":
        return
    fix = "set PYTHONUTF8=1"
    yield Check("terminal", "warning", f"{encoding} has not the letters of all languages", fix)


def _library(place: str | Path) -> Iterator[Check]:
    from polyglance.search.library import Library

    if "://" not in str(place) and not Path(place).expanduser().exists():
        yield Check(
            "library", "failed", f"{place} does not exist", "polyglance index FOLDER makes one"
        )
        return
    with Library(place) as library:
        problems = library.verify()
        if problems:
            more = f" and {len(problems) - 1:,} more" if len(problems) > 1 else ""
            fix = f"polyglance library repair --library {place}"
            yield Check("library", "failed", f"{problems[0]}{more}", fix)
        else:
            yield Check("library", "ok", f"{library.name}: {len(library):,} files, no damage")
