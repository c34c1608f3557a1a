"""Write result files, each with its date, commit and machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = Path(__file__).parent / "results"


def environment() -> dict[str, Any]:
    """Return the date, commit, hardware and Python version of this run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": os.environ.get("POLYGLANCE_COMMIT") or _commit(),
        "hardware": _hardware(),
        "python": platform.python_version(),
    }


def set_commit(commit: str | None) -> None:
    """Set the commit that results name, for machines without git."""
    if commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", commit or "unknown")


def read_results(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Read ``NAME.json`` from the folder of results."""
    figures: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return figures


def write_results(name: str, figures: dict[str, Any], out: Path | None = None) -> Path:
    """Write figures with their environment to ``NAME.json`` and print the path.

    Args:
        name: Name of the file, without its suffix.
        figures: What was measured; its keys override those of `environment`.
        out: Folder of the file; by default ``benchmarks/results``.

    Returns:
        The path of the file.
    """
    path = (RESULTS if out is None else out) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**environment(), **figures}, indent=2, ensure_ascii=False) + "\n")
    print(f"wrote {path}")
    return path


def _commit() -> str:
    result = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
    )  # fmt: skip
    return result.stdout.strip() or "unknown"


def _hardware() -> str:
    cpu = f"{os.cpu_count()} cores of {_cpu_name()}"
    try:
        import torch

        if torch.cuda.is_available():
            return f"{torch.cuda.get_device_name()}, {cpu}"
    except ImportError:
        pass
    return cpu


def _cpu_name() -> str:
    result = subprocess.run(["lscpu"], capture_output=True, text=True, check=False)
    for line in result.stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
