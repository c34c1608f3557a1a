"""Some clients at a real server for a moment get only documented responses."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.speed import serve_load
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library


def test_only_documented_statuses_come_back(tmp_path: Path) -> None:
    path = tmp_path / "my.polyglance"
    with Library(path, threads=1) as library:
        library.add(*sorted(FOLDER.glob("c*.webp")))
        items = len(library)
    with serve_load.serving(path) as (process, port):
        load = serve_load.load(process, port, items, clients=12, idle=20, seconds=1, rounds=1)
        figures = asyncio.run(load)
    assert figures["undocumented"] == []
    assert figures["statuses"]["200"] > 0
    assert figures["requests"] == sum(figures["statuses"].values()) >= 12
    memory = figures["memory_mb"]
    assert memory["peak"] >= memory["before"] > 50
    searched = figures["by_request"]["search"]
    assert 0 < searched["p50_ms"] <= searched["p95_ms"]
    others = figures["other_address"]
    assert set(others) == set(serve_load.PHASES)
    assert all(set(phase["statuses"]) == {"200"} for phase in others.values())
    for phase, costs in figures["costs"].items():
        busy = costs["busy_cores"]
        assert set(busy) == {"server", "decoders", "load generator", "other address"}
        assert busy["server"] > 0, phase
        assert costs["seconds"] > 0.9
    assert figures["idle"]["opened"] >= 40
    assert all(ratio > 0 for ratio in figures["p95_ratios"].values())
