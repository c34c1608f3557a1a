"""The page of training speed: regressions by ratio, and the section of sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import history
from benchmarks.history import Line
from benchmarks.reports import cross_encoder_tables
from benchmarks.reports import training_speed_page as page

RATES = {
    "packed": {
        "length": {"8": 15000, "64": 6000},
        "batch": {"128": 9000, "2048": 12000},
        "languages": {"1": 12000, "100": 11000},
    },
    "transformers": {
        "length": {"8": 9000, "64": None},
        "batch": {"128": 5000, "2048": 6000},
        "languages": {"1": 6000, "100": 6000},
    },
}
SWEEP = {
    "date": "2026-11-16", "commit": "aaa", "hardware": "H",
    "base": {"length": 18, "batch": 1024, "languages": 6},
    "pairs_per_second": RATES,
    "peak_gib": {
        name: {axis: dict.fromkeys(values, 20.0) for axis, values in by_axis.items()}
        for name, by_axis in RATES.items()
    },
}  # fmt: skip


def line(commit: str, packed: float, transformers: float) -> Line:
    rates = {"packed": packed, "transformers": transformers}
    about = {"date": "2026-11-16", "commit": commit, "hardware": "H200, 16 cores"}
    return history.history_line("m3p_step", {**about, "pairs_per_second": rates})


def test_a_regression_is_judged_by_the_ratio() -> None:
    # Faster than before, on a machine that is faster still.
    table = page.changes_table([line("aaa", 9000, 5000), line("bbb", 9500, 6000)])
    (row,) = (text for text in table.splitlines() if "m3p_step" in text)
    assert "| +5.6% | transformers: -12.0% | **yes** |" in row
    steady = page.changes_table([line("aaa", 9000, 5000), line("bbb", 7000, 3900)])
    assert "| -22.2% | transformers: -0.3% | no |" in steady


def test_without_a_common_reference_absolute_figures_decide() -> None:
    assert page.verdict(-0.04, {}) == "no"
    assert page.verdict(-0.06, {}).startswith("perhaps")


def test_a_sweep_has_a_table_and_a_plot_for_each_axis(tmp_path: Path) -> None:
    text = page.sweep_section(SWEEP, tmp_path)
    assert "| packed | 15,000 (20) | 6,000 (20) |" in text
    assert "| transformers | 9,000 (20) | does not fit |" in text
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"sweep-length.svg", "sweep-batch.svg", "sweep-languages.svg"}
    assert (tmp_path / "sweep-length.svg").read_text().count("<polyline") == 2
    assert page.sweep_section(None, tmp_path) == "Not measured yet."


@pytest.mark.parametrize(("mixture", "gib", "expected"), [
    (10_000, 32.0, ("yes by the mixture (10,000)", "yes (32.0)")),
    (9_999, 32.1, ("no by the mixture (9,999)", "no (32.1)")),
])  # fmt: skip
def test_goals_of_a_step(
    tmp_path: Path, mixture: int, gib: float, expected: tuple[str, str]
) -> None:
    figures = {
        "date": "d", "commit": "c", "hardware": "h", "pairs": 1024,
        "pairs_per_second": {"packed": {"itm": 1, "mixture": mixture}},
        "peak_gib": {"packed": {"itm": 1.0, "vtlm": gib}},
    }  # fmt: skip
    (tmp_path / "uc2_step.json").write_text(json.dumps(figures))
    text = cross_encoder_tables.step_speed(tmp_path / "uc2_step.json")
    assert all(words in text for words in expected)


def test_memory_of_captions_on_disk_stands_beside_that_in_memory(tmp_path: Path) -> None:
    results = tmp_path / "vtlm_memory.json"
    assert page.captions_on_disk(results) == "Not measured yet."
    memory = {
        "from disk": {"gigabytes": 0.009, "peak_gigabytes": 0.012},
        "memory": {"gigabytes": 1.2, "peak_gigabytes": 2.5},
    }
    about = {"date": "2026-11-17", "commit": "aaa", "hardware": "H"}
    results.write_text(json.dumps({**about, "captions": 100_000, "memory": memory}))
    text = page.captions_on_disk(results)
    assert "100,000 captions" in text
    assert "| from disk | 9 | 12 |" in text
    assert "| memory | 1,200 | 2,500 |" in text
