"""The size of the repository and the privacy of its results."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIMIT = 60_000_000
"""Maximum size of all tracked files together, in bytes."""


def test_tracked_files_stay_small() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing is tracked")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    assert ROOT / "pyproject.toml" in paths
    # A removed file that is not yet committed still counts as tracked.
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    largest = sorted(sizes, key=sizes.__getitem__)[-5:]
    assert sum(sizes.values()) < LIMIT, f"the largest files are {[path.name for path in largest]}"


def test_results_contain_no_local_path() -> None:
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    assert len(results) > 5
    for path in results:
        found = re.findall(r"[\"=](/\w[\w.-]*/[^\"]*)", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name} names {found[:3]}"
