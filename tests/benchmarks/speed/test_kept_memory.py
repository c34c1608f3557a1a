from __future__ import annotations

from benchmarks.history import history_line
from benchmarks.speed.kept_memory import summary


def test_ratios_are_of_medians() -> None:
    found = {
        "returned": [{"seconds": 20.0, "megabytes": 8}, {"seconds": 30.0, "megabytes": 8}],
        "kept": [{"seconds": 15.0, "megabytes": 10}, {"seconds": 25.0, "megabytes": 10}],
    }
    result = summary(found)
    assert result["medians"]["returned"] == {"seconds": 25.0, "megabytes": 8}
    assert result["ratios"] == {"seconds": 0.8, "megabytes": 1.25}
    assert history_line("kept_memory", result)["ratios"] == {"kept / returned": 1.25}
