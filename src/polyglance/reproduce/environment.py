"""The date, commit and machine that results name."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any


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


@cache  # asked for after every run: of the code that was imported, whatever is committed since
def _commit() -> str:
    if shutil.which("git") is None:
        return "unknown"
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


@cache
def _cpu_name() -> str:
    if shutil.which("lscpu") is None:
        return platform.machine()
    result = subprocess.run(["lscpu"], capture_output=True, text=True, check=False)
    for line in result.stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
