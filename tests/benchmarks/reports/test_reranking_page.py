"""The page of re-ranking on Flickr8k: its goals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.reports import reranking_page as page
from benchmarks.reports import seeds
from polyglance.reproduce.summaries import reranking_summary


def report(**recalls: float) -> dict[str, Any]:
    """The report of a run, with two languages and their mean."""
    trained = {"steps": 1500, "seconds": 90.0}
    return {
        "contrastive_stage": trained,
        "fine_tuning": trained,
        "validation": {"dual_weight": 4.0},
        "test": {
            protocol: {code: {"mR": mean + more} for code, more in
                  (("en", 5.0), ("zh", -5.0), ("average", 0.0))}
            for protocol, mean in recalls.items()
        },
    }  # fmt: skip


def figures(*reports: dict[str, Any]) -> dict[str, Any]:
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 2,
        "seeds": [0, 1], "common_changes": ["loop.steps=9"], **reranking_summary(reports),
    }  # fmt: skip


def test_goals_split_the_gain_into_augmentation_and_reranking(tmp_path: Path) -> None:
    found = {
        "M3P": figures(
            report(dual=56.0, dual_tta=58.0, reranked=57.5, all_pairs=40.0),
            report(dual=56.0, dual_tta=58.0, reranked=58.5, all_pairs=39.0),
        ),
        "UC2": figures(*[report(dual=56.0, dual_tta=58.0, reranked=59.5)] * 2),
    }
    (goals,) = seeds.write_lines(page.goals(found))
    assert goals == [
        "M3P, every pair scored, reaches at least 40 mR: not decided (39.5; above the goal"
        " by -0.5 [-6.9, +5.9], p 1.000).",
        "The default model's top 50, re-ranked with M3P, are at least 2 points above it alone:"
        " not decided (+2.0 [-4.4, +8.4], p 0.624; +2.0 [+2.0, +2.0], p < 0.001 by test-time"
        " augmentation; +0.0 [-6.4, +6.4], p 1.000 by M3P).",
        "The default model's top 50, re-ranked with UC2, are at least 3 points above it alone:"
        " yes (+3.5 [+3.5, +3.5], p < 0.001; +2.0 [+2.0, +2.0], p < 0.001 by test-time"
        " augmentation; +1.5 [+1.5, +1.5], p < 0.001 by UC2).",
    ]
    document = Path(shutil.copy(page.PAGE, tmp_path / "page.md"))
    page.fill(found, document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert once.count("| the default model alone | 61.0 ± 0.0 | 51.0 ± 0.0 | 56.0 ± 0.0 |") == 1
    assert "| its top 50, re-ranked with UC2 | 64.5 ± 0.0 |" in once
    assert "| M3P alone, every pair scored | 44.5 ± 0.7 |" in once
    assert "; 1,500 steps of contrastive-stage, 1,500 steps of fine-tuning in 3.0 minutes" in once
    assert "Changes to the recipe: `loop.steps=9`." in once
    page.fill(found, document)
    assert document.read_text(encoding="utf-8") == once
    page.fill({}, document)
    assert document.read_text(encoding="utf-8").count("Not measured yet") == 3
