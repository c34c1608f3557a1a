"""Write result files, each with its date, commit and machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import history
from polyglance.reproduce.environment import environment, set_commit

__all__ = ["DOCS", "RESULTS", "ROOT", "environment", "read_results", "set_commit", "write_results"]

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = Path(__file__).parent / "results"


def read_results(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Read ``NAME.json`` from the folder of results."""
    figures: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return figures


def write_results(name: str, figures: dict[str, Any], out: Path | None = None) -> Path:
    """Write figures with their environment to ``NAME.json`` and print the path.

    Results of speed benchmarks are also added to the history beside them.

    Args:
        name: Name of the file, without its suffix.
        figures: What was measured; its keys override those of `environment`.
        out: Folder of the file; by default ``benchmarks/results``.

    Returns:
        The path of the file.
    """
    path = (RESULTS if out is None else out) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {**environment(), **figures}
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    if name in history.HEADLINES:
        line = history.history_line(name, results)
        history.add_lines([line], path.parent / history.HISTORY.name)
    print(f"wrote {path}")
    return path
