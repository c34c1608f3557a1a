"""The tables of MSVD: what is in them, and that the command which makes them runs and resumes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from polyglance.recipes import open_recipe
from polyglance.records import Record, write_manifest
from toy_corpus import make_encoder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from benchmarks.experiments import mmp_msvd

    return mmp_msvd


def report(recall: float) -> dict[str, Any]:
    ways = {f"R@{k}": recall + k for k in (1, 5, 10)} | {"median_rank": 3.0}
    both = {"text_to_visual": ways, "visual_to_text": ways}
    measured = {"en": both, "zh": both}
    return {
        "best_score": recall, "seconds": 30.0, "best_step": 80,
        "validation": measured, "test": measured,
    }  # fmt: skip


def figures(script: ModuleType) -> dict[str, Any]:
    settings = {
        name: script.summary(changes, [report(base + more) for more in (9, 11, 13)])
        for base, (name, changes) in enumerate(script.SETTINGS.items())
    }
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus",
        "runs_at_once": 6, "seeds": [0, 1, 2], "settings": settings,
    }  # fmt: skip


def test_a_figure_is_the_mean_and_deviation_of_seeds(script: ModuleType) -> None:
    found = script.summary(("x=1",), [report(9), report(11), report(13)])
    spread = found["test"]["en"]["text_to_visual"]["R@5"]
    assert spread == {"mean": 16, "deviation": 2, "seeds": [14, 16, 18]}
    assert script.summary((), [report(9)])["validation_score"]["deviation"] is None


def test_the_tables_have_the_paper_s_rows(script: ModuleType) -> None:
    rows = script.table_3(figures(script)).splitlines()[2:]
    assert rows[0] == "| Triplet | en | ✓ |  |  | 12.0 ± 2.0 | 16.0 ± 2.0 | 21.0 ± 2.0 |"
    assert rows[3].startswith("| NCE | en | ✓ | ✓ |  | 15.0 ± 2.0 |")
    assert rows[8].startswith("| NCE | en, zh | ✓ | ✓ | ✓ | 20.0 ± 2.0 |")
    assert sum("a softmax a side" in row for row in rows) == 2
    assert len(rows) == len(script.SETTINGS)
    rows = script.table_6(figures(script)).splitlines()
    assert rows[0].startswith("| trained on | objective | en R@1 | en R@5 | en R@10 | zh R@1 |")
    assert [row.split(" | ")[:2] for row in rows[2:]] == [
        ["| en", "inter"],
        ["| en", "inter + intra"],
        ["| en, zh", "inter"],
        ["| en, zh", "inter + intra"],
        ["| en, zh", "inter + cross"],
        ["| en, zh", "inter + intra + cross"],
    ]


def test_every_setting_is_the_recipe_with_changes(script: ModuleType) -> None:
    for name, changes in script.SETTINGS.items():
        recipe = open_recipe(script.RECIPE, changes).settings
        languages, loss, *terms = name.split()
        assert recipe.languages == tuple(languages.split("+"))
        assert recipe.captions_each == len(recipe.languages)
        objective = recipe.objective
        assert objective.loss == loss
        assert (objective.intra, objective.cross) == ("intra" in terms, "cross" in terms)
        assert (objective.negatives == "symmetric") == ("symmetric" in terms)
    for changes in script.SWEPT.values():
        open_recipe(script.RECIPE, changes)
    assert set(script.SWEPT_IN) <= set(script.SETTINGS)


def test_tables_are_put_between_the_marks_again_and_again(
    script: ModuleType, tmp_path: Path
) -> None:
    document = tmp_path / "doc.md"
    document.write_text(script.DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    script.fill(document, figures(script))
    once = document.read_text(encoding="utf-8")
    assert once.count("12.0 ± 2.0") >= 1
    assert "Measured 2031-05-06 at abc1234 on an abacus: 10 settings with 3 seeds each" in once
    script.fill(document, figures(script))
    assert document.read_text(encoding="utf-8") == once


def test_the_command_runs_and_resumes(tmp_path: Path) -> None:
    texts = ["a man runs", "a cat eats", "一个人 在 跑", "一只 猫 在 吃"] * 3
    data, encoder = tmp_path / "data" / "msvd", tmp_path / "encoder"
    make_encoder(encoder, texts, layers=12)
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
        sys.executable, "-m", "benchmarks.experiments.mmp_msvd", "--data", data.parent, "--only", "en+zh nce intra cross",
        "--seeds", "0", "1", "--jobs", "2", "--runs", tmp_path / "runs", "--out", tmp_path,
        "--document", tmp_path / "doc.md", "--commit", "abc1234",
        "--set", f"encoder={encoder}", "--set", "width=16", "--set", "loop.steps=2",
        "--set", "loop.precision=float32",
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd=ROOT)
    written = json.loads((tmp_path / "mmp_msvd.json").read_text())
    assert (written["commit"], written["seeds"]) == ("abc1234", [0, 1])
    measured = written["settings"]["en+zh nce intra cross"]["test"]["zh"]["text_to_visual"]
    assert len(measured["R@1"]["seeds"]) == 2
    assert "| en, zh | inter + intra + cross |" in (tmp_path / "doc.md").read_text()
    kept = sorted((tmp_path / "runs").rglob("*"))
    assert not any("safetensors" in path.name for path in kept)
    before = {path: path.stat().st_mtime_ns for path in kept}
    subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd=ROOT)
    assert {path: path.stat().st_mtime_ns for path in before} == before
