"""MMP on MSVD: its settings and tables, and the command on toy data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments import mmp_msvd
from benchmarks.reports import mmp_page as page
from helpers.text_encoder import save_text_encoder
from polyglance.recipes import open_recipe
from polyglance.records import Record, write_manifest

ROOT = Path(__file__).parents[3]


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
        name: mmp_msvd.summary(changes, [report(base + more) for more in (9, 11, 13)])
        for base, (name, changes) in enumerate(mmp_msvd.SETTINGS.items())
    }
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus",
        "runs_at_once": 6, "seeds": [0, 1, 2], "settings": settings,
    }  # fmt: skip


def test_summaries_have_mean_and_deviation_over_seeds() -> None:
    found = mmp_msvd.summary(("x=1",), [report(9), report(11), report(13)])
    spread = found["test"]["en"]["text_to_visual"]["R@5"]
    assert spread == {"mean": 16, "std": 2, "values": [14, 16, 18]}
    assert mmp_msvd.summary((), [report(9)])["validation_score"]["std"] is None


def test_tables_have_a_row_per_setting() -> None:
    rows = page.table_3(figures()).splitlines()[2:]
    assert rows[0] == "| Triplet | en | ✓ |  |  | 12.0 ± 2.0 | 16.0 ± 2.0 | 21.0 ± 2.0 |"
    assert rows[3].startswith("| NCE | en | ✓ | ✓ |  | 15.0 ± 2.0 |")
    assert rows[8].startswith("| NCE | en, zh | ✓ | ✓ | ✓ | 20.0 ± 2.0 |")
    assert sum("a softmax per direction" in row for row in rows) == 2
    assert len(rows) == len(mmp_msvd.SETTINGS)
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


def test_every_setting_is_the_recipe_with_valid_changes() -> None:
    for name, changes in mmp_msvd.SETTINGS.items():
        recipe = open_recipe(mmp_msvd.RECIPE, changes).settings
        languages, loss, *terms = name.split()
        assert recipe.languages == tuple(languages.split("+"))
        assert recipe.captions_per_image == len(recipe.languages)
        objective = recipe.objective
        assert objective.loss == loss
        assert (objective.intra, objective.cross) == ("intra" in terms, "cross" in terms)
        assert (objective.negatives == "symmetric") == ("symmetric" in terms)
    for changes in mmp_msvd.SWEEP.values():
        open_recipe(mmp_msvd.RECIPE, changes)
    assert set(mmp_msvd.SWEPT_SETTINGS) <= set(mmp_msvd.SETTINGS)


def test_filling_the_page_twice_changes_nothing(tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page.fill(figures(), document)
    once = document.read_text(encoding="utf-8")
    assert once.count("12.0 ± 2.0") >= 1
    assert "Measured 2031-05-06 at abc1234 on an abacus: 10 settings with 3 seeds each" in once
    page.fill(figures(), document)
    assert document.read_text(encoding="utf-8") == once


def test_the_command_trains_each_run_once(tmp_path: Path) -> None:
    texts = ["a man runs", "a cat eats", "一个人 在 跑", "一只 猫 在 吃"] * 3
    data, encoder = tmp_path / "data" / "msvd", tmp_path / "encoder"
    save_text_encoder(encoder, texts, layers=12)
    names = [str(number) for number in range(8)]
    records = [Record(video=n, captions={"en": (texts[0],), "zh": (texts[2],)}) for n in names]
    for split in ("train", "val", "test"):
        write_manifest(data / f"{split}.jsonl", records)
    features = np.random.default_rng(0).normal(size=(8, 3, 4))
    np.savez(data / "features.npz", ids=np.array(names), features=features)
    marks = ("table 3", "table 6", "how")
    (tmp_path / "doc.md").write_text(
        "".join(f"<!-- {mark} -->\n<!-- end of {mark} -->\n" for mark in marks)
    )
    command = [
        sys.executable, "-m", "benchmarks.experiments.mmp_msvd", "--data", data.parent,
        "--only", "en+zh nce intra cross",
        "--seeds", "0", "1", "--jobs", "2", "--runs", tmp_path / "runs", "--out", tmp_path,
        "--document", tmp_path / "doc.md", "--commit", "abc1234",
        "--set", f"encoder={encoder}", "--set", "width=16", "--set", "loop.steps=2",
        "--set", "loop.precision=float32",
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd=ROOT)
    written = json.loads((tmp_path / "mmp_msvd.json").read_text())
    assert (written["commit"], written["seeds"]) == ("abc1234", [0, 1])
    measured = written["settings"]["en+zh nce intra cross"]["test"]["zh"]["text_to_visual"]
    assert len(measured["R@1"]["values"]) == 2
    assert "| en, zh | inter + intra + cross |" in (tmp_path / "doc.md").read_text()
    files = sorted((tmp_path / "runs").rglob("*"))
    assert not any("safetensors" in path.name for path in files)
    before = {path: path.stat().st_mtime_ns for path in files}
    subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd=ROOT)
    assert {path: path.stat().st_mtime_ns for path in before} == before
