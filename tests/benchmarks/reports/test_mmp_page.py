"""The page of MMP on MSVD: its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.reports import mmp_page as page
from polyglance.reproduce.summaries import mmp_setting
from polyglance.reproduce.target import find_target

SETTINGS = [row.name for row in find_target("msvd/mmp")[1].rows]


def report(recall: float) -> dict[str, Any]:
    ways = {f"R@{k}": recall + k for k in (1, 5, 10)} | {"median_rank": 3.0}
    both = {"text_to_visual": ways, "visual_to_text": ways}
    measured = {"en": both, "zh": both}
    return {
        "best_score": recall, "seconds": 30.0, "best_step": 80,
        "validation": measured, "test": measured,
    }  # fmt: skip


def figures() -> dict[str, Any]:
    settings = {
        name: mmp_setting([report(base + more) for more in (9, 11, 13)])
        for base, name in enumerate(SETTINGS)
    }
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus",
        "runs_at_once": 6, "seeds": [0, 1, 2], "settings": settings,
    }  # fmt: skip


def test_summaries_have_mean_and_deviation_over_seeds() -> None:
    found = mmp_setting([report(9), report(11), report(13)])
    spread = found["test"]["en"]["text_to_visual"]["R@5"]
    assert spread == {"mean": 16, "std": 2, "values": [14, 16, 18]}
    assert mmp_setting([report(9)])["validation_score"]["std"] is None


def test_tables_have_a_row_per_setting() -> None:
    rows = page.table_3(figures()).splitlines()[2:]
    assert rows[0] == "| Triplet | en | ✓ |  |  | 12.0 ± 2.0 | 16.0 ± 2.0 | 21.0 ± 2.0 |"
    assert rows[3].startswith("| NCE | en | ✓ | ✓ |  | 15.0 ± 2.0 |")
    assert rows[8].startswith("| NCE | en, zh | ✓ | ✓ | ✓ | 20.0 ± 2.0 |")
    assert sum("a softmax per direction" in row for row in rows) == 2
    assert len(rows) == len(SETTINGS)
    rows = page.table_6(figures()).splitlines()
    assert rows[0].startswith("| trained on | objective | en R@1 | en R@5 | en R@10 | zh R@1 |")
    assert [row.split(" | ")[:2] for row in rows[2:]] == [
        ["| en", "inter"],
        ["| en", "inter + intra"],
        ["| en, zh", "inter"],
        ["| en, zh", "inter + intra"],
        ["| en, zh", "inter + cross"],
        ["| en, zh", "inter + intra + cross"],
    ]


def test_filling_the_page_twice_changes_nothing(tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page.fill(figures(), document)
    once = document.read_text(encoding="utf-8")
    assert once.count("12.0 ± 2.0") >= 1
    assert "Measured 2031-05-06 at abc1234 on an abacus: 10 settings with 3 seeds each" in once
    page.fill(figures(), document)
    assert document.read_text(encoding="utf-8") == once
