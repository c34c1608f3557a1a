"""A few clients at a real service for a moment: only what is promised comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library


def test_nothing_comes_back_that_is_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.speed import serve_load

    place = tmp_path / "my.polyglance"
    with Library(place, threads=1) as library:
        library.add(*sorted(FOLDER.glob("c*.webp")))
        items = len(library)
    with serve_load.serving(place) as (process, port):
        found = asyncio.run(serve_load.load(process, port, items, 12, 1))
    assert found["not promised"] == []
    assert found["answers"]["200"] > 0
    assert found["requests"] == sum(found["answers"].values()) >= 12
    memory = found["memory_mb"]
    assert memory["most"] >= memory["before"] > 50
    searched = found["by kind"]["search"]
    assert 0 < searched["p50_ms"] <= searched["p95_ms"]
