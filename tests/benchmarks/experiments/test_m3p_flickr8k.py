"""M3P on Flickr8k: its runs, tables and claims, and the command on toy data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.experiments.m3p_flickr8k import M3PBenchmark
from benchmarks.reports import m3p_page as page
from helpers.cross_encoder_benchmark import BenchmarkCommand
from polyglance.recipes import open_recipe

LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")
BENCHMARK = M3PBenchmark()


def test_the_plan_has_exactly_the_runs_of_the_tables() -> None:
    assert open_recipe(BENCHMARK.recipe).settings.code_switching.languages == LANGUAGES
    runs = {run.name: run for run in BENCHMARK.plan(LANGUAGES)}
    needed = {name for number in page.TABLES for name in BENCHMARK.table_runs(number, LANGUAGES)}
    assert {run.name for run in runs.values() if run.parent is not None} == needed
    assert {run.parent for run in runs.values() if run.parent is not None} == {
        run.name for run in runs.values() if run.parent is None
    }
    assert (len(runs), len(needed)) == (34, 26)


def test_every_run_is_the_recipe_with_valid_changes() -> None:
    recipes = {
        run.name: open_recipe(
            BENCHMARK.recipe, [change.replace("{parent}", "PARENT") for change in run.changes]
        ).settings
        for run in BENCHMARK.plan(LANGUAGES, test_images=20)
    }
    for name, recipe in recipes.items():
        pretrains = " > " not in name
        assert (recipe.pretraining is not None) == pretrains
        assert recipe.initialise_from == (None if pretrains else "PARENT/pretraining")
        assert recipe.reranking is None
        if not pretrains:
            assert recipe.test_images == 20
    tasks = {name: recipes[name].pretraining.tasks for name in page.TASKS.values()}
    left_out = {"no MC-MLM": "mc_mlm", "no MC-MRM": "mc_mrm", "no MC-VLM": "mc_vlm"}
    for name, found in tasks.items():
        assert {"mc_mlm", "mc_mrm", "mc_vlm"} - set(found) == {left_out.get(name)} - {None}
        assert (recipes[name].pretraining.text_batch == 0) == (name == "no xMLM")
        assert not recipes[name].pretraining.code_switched
    assert recipes["MCT 2"].code_switching.languages == ("de", "fr")
    assert recipes["MCT 4"].code_switching.languages == ("de", "fr", "cs", "pt")
    assert recipes["M3P"].pretraining.code_switched
    assert recipes["M3P > zh"].fine_tuning.languages == ("zh",)
    assert recipes["M3P > all"].fine_tuning.languages is None
    assert recipes["no MCT > switched en"].fine_tuning.code_switched
    assert recipes["M3P > nothing"].fine_tuning is None


def figures(**recalls: float) -> dict[str, Any]:
    """Results with 30 mR in English and 20 elsewhere, plus what is given for a run."""
    runs = {}
    for run in BENCHMARK.plan(LANGUAGES):
        more = recalls.get(run.name.replace(" > ", "_").replace(" ", "_").replace("-", "_"), 0.0)
        reports = {}
        for seed in range(3):
            mean = {code: {"mR": 20 + more + seed} for code in LANGUAGES}
            measured = {"en": {"mR": 30 + more + seed}, **mean, "average": {"mR": 22 + more}}
            trained = {"seconds": 60.0, "steps": 900, "best_step": 500}
            reports[seed] = {"fine_tuning": trained, "test": {"all_pairs": measured}}
        runs[run.name] = BENCHMARK.summary(run, reports)
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 4,
        "common_changes": ["loop.steps=9"],
        "seeds": [0, 1, 2], "languages": ["en", *LANGUAGES], "test_images": 300, "runs": runs,
    }  # fmt: skip


def test_the_row_on_each_takes_each_language_from_its_own_run() -> None:
    found = figures(M3P_de=7.0, M3P_en=1.0)
    row = next(r for r in page.table(found, 2).splitlines() if r.startswith("| on each |"))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells[:3] == ["32.0 ± 1.0", "28.0 ± 1.0", "21.0 ± 1.0"]
    assert cells[-3] == "22.2 ± 1.0"  # others: (28 + 5 * 21) / 6
    assert cells[-1] == "87.4, 71.5"
    del found["runs"]["M3P > ar"]
    row = next(r for r in page.table(found, 2).splitlines() if r.startswith("| on each |"))
    assert [cell.strip() for cell in row.split("|")[-5:-2]] == ["–", "–", "–"]


def test_claims_are_computed() -> None:
    found = figures(M3P_nothing=4.0, MCT_2_nothing=5.0, no_MCT_en=6.0, M3P_en=3.0,
        no_xMLM_en=1.0, no_MC_MRM_en=6.5,
    )  # fmt: skip
    lines = page.claims(found)

    def claim(start: str) -> str:
        (line,) = (line for line in lines if line.startswith(start))
        return line

    assert claim("MCT helps other languages, without fine-tuning").endswith(
        "(the paper: +5.6): yes (+4.0 [+4.0, +4.0], p < 0.001)."
    )
    assert claim("MCT helps other languages, fine-tuned on English").endswith(
        "(the paper: +7.0): no (-3.0 [-3.0, -3.0], p < 0.001)."
    )
    assert "(the paper: +0.3): not decided" in claim(
        "MCT helps other languages, fine-tuned on each"
    )
    assert "de, fr): a gain (+5.0 [" in claim("MCT of 2 languages against none, in these")
    assert "of 50 against 3: -1.5): a loss (-1.0 [" in claim("MCT of all languages against 2")
    assert "no in English (-0.5 [" in claim("MC-MRM helps")
    assert "each: +6.4 in English, +10.7 in others): yes in English" in claim("xMLM helps")
    most = claim("The task that brings most by the mean")
    assert re.search(r"MC-MLM \(\+\d.*\) in English, MC-MLM \(\+\d.*\) in", most)
    assert "not decided" in claim("xMLM brings more to other languages")  # the same to both
    assert page.claims({**found, "runs": {}}) == []


def test_gains_are_over_the_seeds_that_both_settings_have() -> None:
    found = figures(M3P_nothing=4.0)
    one = found["runs"]["M3P > nothing"]
    one["seeds"] = [2]
    for spread in one["test"]["all_pairs"].values():
        spread["values"] = spread["values"][2:]
    lines = [line for line in page.claims(found) if "without fine-tuning" in line]
    assert lines[0].endswith("not decided, by one seed (+4.0).")


def test_filling_the_page_twice_changes_nothing(tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page.fill(figures(), document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert "| without xMLM | 31.0 ± 1.0 | 21.0 ± 1.0 |" in once
    assert "| on English | ✓ | 31.0 ± 1.0 |" in once
    assert "Measured 2031-05-06 at abc1234 on an abacus: 34 runs" in once
    assert "All runs change the recipe by `loop.steps=9` (`--set`)." in once
    page.fill(figures(), document)
    assert document.read_text(encoding="utf-8") == once
    few = {
        **figures(),
        "runs": {"M3P > all": figures()["runs"]["M3P"]},
    }
    page.fill(few, document)
    assert "Not measured yet" in document.read_text(encoding="utf-8")


CHANGES = (
    "texts=[{manifest: text/multi30k-parallel.jsonl.gz}]", "code_switching.languages=[de]",
    "pretraining.text_batch=4",
)  # fmt: skip


def test_the_command_trains_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = BenchmarkCommand(BENCHMARK, tmp_path, monkeypatch, CHANGES)
    data = set((tmp_path / "data").rglob("*"))
    some = ("--keep-weights", "--only", "M3P > nothing", "M3P > de", "M3P > all", "no MCT > all")
    command(*some)
    found = command.results()
    assert set(found) == {
        "M3P", "M3P > nothing", "M3P > de", "M3P > all", "no MCT", "no MCT > all",
    }  # fmt: skip
    assert found["M3P"]["test"] == {}
    assert set(found["M3P > de"]["test"]["all_pairs"]) == {"de", "average"}
    manifests = [c for c in found["M3P > de"]["changes"] if c.startswith("test.manifest=")]
    assert [Path(c).parent.name for c in manifests] == ["test.manifest=CACHE"]
    assert str(tmp_path) not in json.dumps(found)
    assert set(found["M3P > all"]["test"]["all_pairs"]) == {"en", "de", "average"}
    assert "| on all | ✓ |" in command.page()
    assert set((tmp_path / "data").rglob("*")) == data
    assert len(list((tmp_path / "cache").glob("dictionaries-*/en-de.tsv"))) == 1

    # With a learning rate near 0, fine-tuned weights stay those of the pre-training.
    def max_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
        assert set(one) == set(other)
        return max(float(np.abs(one[name] - other[name]).max()) for name in one)

    tuned = command.weights("M3P-all", "fine_tuning")
    assert max_difference(tuned, command.weights("M3P", "pretraining")) < 1e-6
    assert max_difference(tuned, command.weights("no-MCT", "pretraining")) > 1e-3
    other = command.weights("no-MCT-all", "fine_tuning")
    assert max_difference(other, command.weights("no-MCT", "pretraining")) < 1e-6

    before = command.report_times()
    command(*some)
    assert command.report_times() == before
    command(*some, "--test-images", 5, "--set", "fine_tuning.negatives=2")
    retrained = {name for name, time in command.report_times().items() if time != before[name]}
    assert retrained == {"M3P-nothing", "M3P-de", "M3P-all", "no-MCT-all"}

    with pytest.raises(SystemExit, match="there is no run 'M3P > nobody'"):
        command("--only", "M3P > nobody")
