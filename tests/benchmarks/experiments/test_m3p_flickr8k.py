"""M3P's tables: what is in them, what they claim, and that the command which makes them runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.cross_encoder_benchmark import PairCommand
from polyglance.recipes import open_recipe

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "results-m3p.md"
LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    from benchmarks.experiments import m3p_flickr8k

    return m3p_flickr8k.M3PBenchmark()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from benchmarks.reports import m3p_page

    return m3p_page


def test_the_plan_has_the_runs_of_the_tables_and_no_others(
    benchmark: Any, page: ModuleType
) -> None:
    assert open_recipe(benchmark.recipe).settings.switching.languages == LANGUAGES
    runs = {run.name: run for run in benchmark.plan(LANGUAGES)}
    needed = {name for number in page.TABLES for name in benchmark.of_table(number, LANGUAGES)}
    assert {run.name for run in runs.values() if run.after is not None} == needed
    assert {run.after for run in runs.values() if run.after is not None} == {
        run.name for run in runs.values() if run.after is None
    }
    assert (len(runs), len(needed)) == (34, 26)


def test_every_run_is_the_recipe_with_changes(benchmark: Any, page: ModuleType) -> None:
    recipes = {
        run.name: open_recipe(
            benchmark.recipe, [change.replace("{after}", "BEFORE") for change in run.changes]
        ).settings
        for run in benchmark.plan(LANGUAGES, test_on=20)
    }
    for name, recipe in recipes.items():
        pretrains = " > " not in name
        assert (recipe.pretraining is not None) == pretrains
        assert recipe.initialise_from == (None if pretrains else "BEFORE/pretraining")
        assert recipe.reranking is None
        if not pretrains:
            assert recipe.test_on == 20
    tasks = {name: recipes[name].pretraining.tasks for name in page.TASKS.values()}
    left_out = {"no MC-MLM": "words", "no MC-MRM": "regions", "no MC-VLM": "matching"}
    for name, found in tasks.items():
        assert {"words", "regions", "matching"} - set(found) == {left_out.get(name)} - {None}
        assert (recipes[name].pretraining.text_batch == 0) == (name == "no xMLM")
        assert not recipes[name].pretraining.switched
    assert recipes["MCT 2"].switching.languages == ("de", "fr")
    assert recipes["MCT 4"].switching.languages == ("de", "fr", "cs", "pt")
    assert recipes["M3P"].pretraining.switched
    assert recipes["M3P > zh"].fine_tuning.languages == ("zh",)
    assert recipes["M3P > all"].fine_tuning.languages is None
    assert recipes["no MCT > switched en"].fine_tuning.switched
    assert recipes["M3P > nothing"].fine_tuning is None


def figures(benchmark: Any, page: ModuleType, **recalls: float) -> dict[str, Any]:
    """Each run with 30 mR in English and 20 elsewhere, and what a run is said to have more."""
    runs = {}
    for run in benchmark.plan(LANGUAGES):
        more = recalls.get(run.name.replace(" > ", "_").replace(" ", "_").replace("-", "_"), 0.0)
        reports = {}
        for seed in range(3):
            mean = {code: {"mR": 20 + more + seed} for code in LANGUAGES}
            measured = {"en": {"mR": 30 + more + seed}, **mean, "average": {"mR": 22 + more}}
            trained = {"seconds": 60.0, "steps": 900, "best_step": 500}
            reports[seed] = {"fine_tuning": trained, "test": {"all_pairs": measured}}
        runs[run.name] = benchmark.summary(run, reports)
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 4,
        "changed_everywhere": ["loop.steps=9"],
        "seeds": [0, 1, 2], "languages": ["en", *LANGUAGES], "test_on": 300, "runs": runs,
    }  # fmt: skip


def test_a_row_on_each_takes_each_language_from_its_own_run(
    benchmark: Any, page: ModuleType
) -> None:
    found = figures(benchmark, page, M3P_de=7.0, M3P_en=1.0)
    row = next(r for r in page.table(found, 2).splitlines() if r.startswith("| on each |"))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells[:3] == ["32.0 ± 1.0", "28.0 ± 1.0", "21.0 ± 1.0"]
    assert cells[-3] == "22.2 ± 1.0"  # others: (28 + 5 * 21) / 6
    assert cells[-1] == "87.4, 71.5"
    del found["runs"]["M3P > ar"]
    row = next(r for r in page.table(found, 2).splitlines() if r.startswith("| on each |"))
    assert [cell.strip() for cell in row.split("|")[-5:-2]] == ["–", "–", "–"]


def test_claims_are_computed(benchmark: Any, page: ModuleType) -> None:
    found = figures(
        benchmark, page, M3P_nothing=4.0, MCT_2_nothing=5.0, no_MCT_en=6.0, M3P_en=3.0,
        no_xMLM_en=1.0, no_MC_MRM_en=6.5,
    )  # fmt: skip
    lines = page.claims(found)

    def said(beginning: str) -> str:
        (line,) = (line for line in lines if line.startswith(beginning))
        return line

    assert said("MCT helps other languages, without fine-tuning").endswith(
        "(the paper: +5.6): yes (+4.0 ± 0.0)."
    )
    assert said("MCT helps other languages, fine-tuned on English").endswith(
        "(the paper: +7.0): no (-3.0 ± 0.0)."
    )
    assert "(the paper: +0.3): equal within" in said(
        "MCT helps other languages, fine-tuned on each"
    )
    assert "de, fr): a gain (+5.0 ± 0.0)" in said("MCT of 2 languages against none, in these")
    assert "of 50 against 3: -1.5): a loss (-1.0 ± 0.0)" in said("MCT of all languages against 2")
    assert "no in English (-0.5 ± 0.0)" in said("MC-MRM helps")
    assert "each: +6.4 in English, +10.7 in others): yes in English" in said("xMLM helps")
    most = said("The task that brings most by the mean")
    assert re.search(r"MC-MLM \(\+\d\.\d ± 0\.0\) in English, MC-MLM \(\+\d\.\d ± 0\.0\) in", most)
    assert page.claims({**found, "runs": {}}) == []


def test_gains_are_of_the_seeds_that_both_have(benchmark: Any, page: ModuleType) -> None:
    found = figures(benchmark, page, M3P_nothing=4.0)
    one = found["runs"]["M3P > nothing"]
    one["seeds"] = [2]
    for spread in one["test"]["all_pairs"].values():
        spread["seeds"] = spread["seeds"][2:]
    lines = [line for line in page.claims(found) if "without fine-tuning" in line]
    assert lines[0].endswith("yes, by one seed (+4.0).")
    near = page.seeds.verdict((1.9, None)), page.seeds.verdict((1.9, 0.5))
    assert near == ("too near to tell by one seed", "yes")


def test_the_page_is_filled_again_and_again(
    benchmark: Any, page: ModuleType, tmp_path: Path
) -> None:
    document = tmp_path / "doc.md"
    document.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page.fill(figures(benchmark, page), document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert "| without xMLM | 31.0 ± 1.0 | 21.0 ± 1.0 |" in once
    assert "| on English | ✓ | 31.0 ± 1.0 |" in once
    assert "Measured 2031-05-06 at abc1234 on an abacus: 34 runs" in once
    assert "All runs differ from the recipe by `loop.steps=9` (`--set`)." in once
    page.fill(figures(benchmark, page), document)
    assert document.read_text(encoding="utf-8") == once
    few = {
        **figures(benchmark, page),
        "runs": {"M3P > all": figures(benchmark, page)["runs"]["M3P"]},
    }
    page.fill(few, document)
    assert "Not measured yet" in document.read_text(encoding="utf-8")


CHANGES = (
    "texts=[{manifest: text/multi30k-parallel.jsonl.gz}]", "switching.languages=[de]",
    "pretraining.text_batch=4",
)  # fmt: skip


def test_the_command_runs_and_resumes(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = PairCommand(benchmark, tmp_path, monkeypatch, CHANGES)
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

    # Fine-tuned at a rate of next to nothing, weights are still those that they began as.
    def apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
        assert set(one) == set(other)
        return max(float(np.abs(one[name] - other[name]).max()) for name in one)

    tuned = command.weights("M3P-all", "fine_tuning")
    assert apart(tuned, command.weights("M3P", "pretraining")) < 1e-6
    assert apart(tuned, command.weights("no-MCT", "pretraining")) > 1e-3
    other = command.weights("no-MCT-all", "fine_tuning")
    assert apart(other, command.weights("no-MCT", "pretraining")) < 1e-6

    before = command.written()
    command(*some)
    assert command.written() == before
    command(*some, "--test-on", 5, "--set", "fine_tuning.negatives=2")
    made_again = {name for name, time in command.written().items() if time != before[name]}
    assert made_again == {"M3P-nothing", "M3P-de", "M3P-all", "no-MCT-all"}

    with pytest.raises(SystemExit, match="there is no run 'M3P > nobody'"):
        command("--only", "M3P > nobody")
