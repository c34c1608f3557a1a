"""The history of speed benchmarks: lines, ratios to references, and regressions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import history, results_io


def results(packed: float, reference: float, commit: str = "aaa") -> dict[str, Any]:
    rates = {"packed": {"itm": 9, "mixture": packed}, "transformers": {"mixture": reference}}
    return {
        "date": "2026-11-16", "commit": commit, "hardware": "H", "torch": "2",
        "pairs": 1024, "pairs_per_second": rates, "peak_gib": {}, "runs": [1], "same": True,
    }  # fmt: skip


def test_a_line_has_flat_figures_and_ratios() -> None:
    assert history.history_line("uc2_step", results(1000, 500)) == {
        "benchmark": "uc2_step", "date": "2026-11-16", "commit": "aaa", "hardware": "H",
        "figures": {
            "pairs": 1024, "pairs_per_second/packed/itm": 9,
            "pairs_per_second/packed/mixture": 1000,
            "pairs_per_second/transformers/mixture": 500,
        },
        "ratios": {"packed / transformers": 2.0},
    }  # fmt: skip


def test_a_ratio_of_times_is_above_one_where_ours_is_faster() -> None:
    times = {"onnx": {"median": 10.0, "best": 1.0}, "torch": {"median": 25.0, "best": 1.0}}
    line = history.history_line("latency", {"text_query_ms": times})
    assert line["ratios"] == {"onnx / torch": 2.5}


def test_a_commit_and_machine_have_one_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for packed, commit in ((1000, "aaa"), (1100, "bbb"), (1200, "aaa")):
        line = history.history_line("uc2_step", results(packed, 500, commit))
        history.add_lines([line], path)
    lines = history.read_history(path)
    rates = [line["figures"]["pairs_per_second/packed/mixture"] for line in lines]
    assert rates == [1200, 1100]


def test_a_regression_shows_in_the_ratio_although_the_machine_is_faster() -> None:
    earlier = history.history_line("uc2_step", results(1000, 500))
    line = history.history_line("uc2_step", results(1100, 600, "bbb"))
    changed = history.change(line, earlier)
    assert changed is not None
    absolute, by_ratio = changed
    assert absolute == pytest.approx(0.1)
    assert by_ratio == {"packed / transformers": pytest.approx(1100 / 600 / 2 - 1, abs=1e-4)}
    assert by_ratio["packed / transformers"] < -history.REGRESSION


def test_writing_results_of_a_speed_benchmark_adds_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results_io.write_results("uc2_step", results(1000, 500), tmp_path)
    results_io.write_results("uc2_flickr8k", {"runs": {}}, tmp_path)
    (line,) = history.read_history(tmp_path / "history.jsonl")
    assert line["benchmark"] == "uc2_step"
    assert json.loads((tmp_path / "uc2_step.json").read_text())["pairs"] == 1024


def test_every_speed_benchmark_has_a_history() -> None:
    named = set()
    for module in (results_io.ROOT / "benchmarks" / "speed").glob("*.py"):
        named |= set(re.findall(r'write_results\(\s*"(\w+)"', module.read_text(encoding="utf-8")))
    assert len(named) > 5
    assert named <= history.HEADLINES.keys()


def test_the_history_has_all_current_results() -> None:
    lines = history.read_history()
    for name in history.HEADLINES:
        if (results_io.RESULTS / f"{name}.json").is_file():
            assert history.history_line(name, results_io.read_results(name)) in lines
