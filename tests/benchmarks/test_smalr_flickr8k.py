"""SMALR's table: what is in it, what it claims, and that the command which makes it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from polyglance.config import dump
from polyglance.models.word_baselines import WORD_MODELS
from polyglance.recipes import open_recipe
from toy_word_corpus import LANGUAGES, RECIPE, make_toy_word_corpus

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "results-smalr.md"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import smalr_flickr8k

    return smalr_flickr8k


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import smalr_page

    return smalr_page


def report(recall: float, millions: float = 10, **more: Any) -> dict[str, Any]:
    measured = {language: {"mR": recall} for language in ("en", "zh", "average")}
    return {
        "trainable_parameters": int(millions * 1e6), "word_parameters": int(millions * 1e5),
        "test_time_parameters": 7_000_000, "words": 100, "latent_tokens": 10, "seconds": 20.0,
        "pretraining_seconds": 5.0, "best_step": 80, "best_score": recall,
        "validation": measured, "test": measured, **more,
    }  # fmt: skip


def settings(script: ModuleType, **recalls: list[float]) -> dict[str, Any]:
    """Each model with the recalls of its seeds, else 30."""
    return {
        name: script.summary(changes, [
            report(recall, **({"consistency": clc(recall)} if name == "SMALR" else {}))
            for recall in recalls.get(name.replace("-", "_"), [29.0, 30.0, 31.0])
        ])
        for name, changes in script.SETTINGS.items()
    }  # fmt: skip


def clc(recall: float) -> dict[str, Any]:
    def ways(gain: float) -> dict[str, Any]:
        same = dict.fromkeys(("en", "zh", "average"), recall + gain)
        return {"clc-a": same, "clc-c": {key: value + 0.5 for key, value in same.items()}}

    return {
        "dictionary": {**ways(1.0), "parameters": 96},
        "dataset": {**ways(9.0), "parameters": 96},
    }


def test_every_setting_is_the_recipe_with_changes(script: ModuleType, page: ModuleType) -> None:
    models = set()
    for changes in (*script.SETTINGS.values(), *script.SWEPT.values()):
        models.add(open_recipe(script.RECIPE, changes).settings.model)
    assert models == set(WORD_MODELS)
    assert set(script.SETTINGS) == set(page.ROWS)
    measured = [n for n, c in script.SETTINGS.items() if "consistency=false" not in c]
    assert measured == ["SMALR"]


def test_figures_are_means_and_deviations_of_seeds(script: ModuleType) -> None:
    found = script.summary(("x=1",), [report(9), report(11), report(13)])
    assert found["test"]["zh"] == {"mean": 11, "deviation": 2, "seeds": [9, 11, 13]}
    assert found["trainable_parameters"] == 10_000_000
    assert script.summary((), [report(9)])["test"]["en"]["deviation"] is None


def test_claims_are_computed(script: ModuleType, page: ModuleType) -> None:
    found = page.claims(
        settings(
            script, SMALR=[35.0, 36.0, 37.0], HEM=[33.0, 36.0, 36.0], LA=[30.0, 30.5, 32.0],
            S_LIWE=[40.0, 41.0, 42.0],
        )
    )  # fmt: skip

    def said(beginning: str) -> str:
        (line,) = (line for line in found if line.startswith(beginning))
        return line

    assert "yes (HEM +4.2 ± 1.3 to LA)" in said("HEM above LA")
    assert "equal within the deviation of seeds" in said("SMALR at or above HEM")
    assert ": no (SMALR -5.0 ± 0.0 to S-LIWE)" in said("SMALR above S-LIWE")
    assert "yes (CLC-A, dictionary +1.0 ± 0.0 to SMALR)" in said("CLC-A above SMALR (")
    assert said("SMALR with CLC of at least 36 mR, dictionary").endswith(": yes (37.5).")
    assert "no for all that is trained (100% of 10.0M)" in said("With at most a fifth")
    assert said("SMALR with at most 8.0M").endswith(": yes (7.0M).")


def test_the_page_is_filled_again_and_again(
    script: ModuleType, page: ModuleType, tmp_path: Path
) -> None:
    figures = {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 8,
        "seeds": [0, 1, 2], "seconds": {"in_all": 540}, "settings": settings(script),
    }  # fmt: skip
    document = tmp_path / "doc.md"
    document.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page.fill(figures, document)
    once = document.read_text(encoding="utf-8")
    assert "| SMALR | 10.0M | 1.0M | 7.0M | 30.0 ± 1.0 | 30.0 ± 1.0 | 30.0 ± 1.0 |" in once
    assert "| SMALR + CLC-C | word by word | 31.5 ± 1.0 |" in once
    assert "Measured 2031-05-06 at abc1234 on an abacus: 16 settings with 3 seeds each" in once
    drawn = (tmp_path / "images" / "smalr.svg").read_text(encoding="utf-8")
    names = {text.text for text in ElementTree.fromstring(drawn).iter() if text.text}
    assert {"SMALR 30.0", "MULE 30.0", "PCA 50", "frequency 20"} <= names
    page.fill(figures, document)
    assert document.read_text(encoding="utf-8") == once


def test_the_command_runs_and_resumes(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_toy_word_corpus(tmp_path / "data", pictures=60)
    (tmp_path / "toy.yaml").write_text("kind: words\n" + dump(RECIPE), encoding="utf-8")
    marks = ("models", "consistency", "order", "how")
    (tmp_path / "doc.md").write_text(
        "".join(f"<!-- {mark} -->\n<!-- end of {mark} -->\n" for mark in marks)
    )

    def command(jobs: int) -> None:
        options = [
            "--data", tmp_path / "data", "--recipe", tmp_path / "toy.yaml", "--only", "SMALR",
            "HEM", "--seeds", "0", "1", "--jobs", jobs, "--runs", tmp_path / "runs",
            "--cache", tmp_path / "cache", "--out", tmp_path, "--document", tmp_path / "doc.md",
            "--set", "loop.steps=2", "--set", "pretraining.steps=2", "--set", "consistency=true",
        ]  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["smalr_flickr8k.py", *map(str, options)])
        monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
        script.main()

    command(jobs=2)
    written = json.loads((tmp_path / "smalr_flickr8k.json").read_text())
    assert (written["commit"], written["seeds"]) == ("abc1234", [0, 1])
    smalr = written["settings"]["SMALR"]
    assert set(smalr["test"]) == {*LANGUAGES, "average"}
    assert len(smalr["consistency"]["dictionary"]["clc-c"]["average"]["seeds"]) == 2
    assert "| HEM |" in (tmp_path / "doc.md").read_text()
    assert len(list((tmp_path / "cache").glob("latent-*"))) == 2  # one a seed, for both models
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in kept}
    command(jobs=1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
