"""What every benchmark writes beside its figures: when, on which commit, on which machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, Any]:
    """Date, commit and hardware of this run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": os.environ.get("POLYGLANCE_COMMIT") or _commit(),
        "hardware": _hardware(),
        "python": platform.python_version(),
    }


def write_results(name: str, figures: dict[str, Any], out: Path | None = None) -> Path:
    """Write ``benchmarks/results/NAME.json`` (or into another folder) and say so."""
    path = (RESULTS if out is None else out) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**circumstances(), **figures}, indent=2, ensure_ascii=False) + "\n")
    print(f"wrote {path}")
    return path


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
    )  # fmt: skip
    return asked.stdout.strip() or "unknown"


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
    asked = subprocess.run(["lscpu"], capture_output=True, text=True, check=False)
    for line in asked.stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
