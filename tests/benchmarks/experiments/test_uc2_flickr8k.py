"""UC2 on Flickr8k: its runs, tables and claims, and the command on toy data."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.experiments import uc2_flickr8k
from benchmarks.experiments.uc2_flickr8k import UC2Benchmark
from benchmarks.reports import uc2_page as page
from benchmarks.reports.cross_encoder_tables import how, only_complete_seeds
from helpers.cross_encoder_benchmark import BenchmarkCommand
from polyglance.recipes import open_recipe

LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")
CHANGES = (
    "labels.names=flickr8k/labels.tsv", "early_adaptation.steps=40", "early_adaptation.warmup=0",
    "early_adaptation.batch=24", "early_adaptation.learning_rate=1e-2",
)  # fmt: skip


BENCHMARK = UC2Benchmark()


def test_the_plan_has_exactly_the_runs_of_the_tables() -> None:
    runs = {run.name: run for run in BENCHMARK.plan(LANGUAGES)}
    needed = {name for number in page.TABLES for name in BENCHMARK.table_runs(number, LANGUAGES)}
    assert {run.name for run in runs.values() if run.parent is not None} == needed
    assert {run.parent for run in runs.values() if run.parent is not None} == {
        run.name for run in runs.values() if run.parent is None
    }
    assert (len(runs), len(needed)) == (17, 12)
    assert set(page.PAPER) == {s for table in page.TABLES.values() for s in table.rows.values()}


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
        assert (recipe.early_adaptation is not None) == pretrains
        assert recipe.initialise_from == (None if pretrains else "PARENT/pretraining")
        assert recipe.reranking is None
        assert (recipe.translate_test is not None) == (name == "UC2 > en")
        if not pretrains:
            assert recipe.test_images == 20
    left_out = {"UC2": (9, 3), "no VTLM": (9, 0), "no MRTM": (0, 3), "no VTLM, no MRTM": (0, 0)}
    for name, shares in left_out.items():
        mixture = recipes[name].pretraining.mixture
        assert (mixture.mrtm, mixture.vtlm) == shares
        assert recipes[name].pretraining.pivot == "image"
    english = recipes["English pivot"].pretraining
    assert (english.pivot, english.mixture.mrtm, english.mixture.vtlm) == ("english", 9, 3)
    assert recipes["UC2 > zh"].fine_tuning.languages == ("zh",)
    assert recipes["UC2 > all"].fine_tuning.languages is None


def figures(**recalls: float) -> dict[str, Any]:
    """Results with 30 mR in English and 20 elsewhere, plus what is given for a run."""
    runs = {}
    for run in BENCHMARK.plan(LANGUAGES):
        key = run.name.replace(" > ", "_").replace(",", "").replace(" ", "_")
        more = recalls.get(key, 0.0)
        reports = {}
        for seed in range(3):
            mean = {code: {"mR": 20 + more + seed} for code in LANGUAGES}
            measured = {"en": {"mR": 30 + more + seed}, **mean, "average": {"mR": 22 + more}}
            report: dict[str, Any] = {"test": {"all_pairs": measured}}
            better = {code: {"mR": found["mR"] + 3.5} for code, found in measured.items()}
            if run.name == "UC2 > en":
                report["translate_test"] = {"all_pairs": better}
            trained = {"seconds": 60.0, "steps": 900, "best_step": 500}
            if run.parent is None:
                ranks = {"en": {"mean": 480.0 + seed, "median": 450.0, "first": 0.1}}
                nearer = {"en": {"mean": 20.0 + seed, "median": 3.0, "first": 40.0}}
                report["early_adaptation"] = {**trained, "rank_before": ranks, "rank_after": nearer}
                report["labels"] = {"named": {"en": 1.0, "de": 0.62}}
            reports[seed] = {**report, "fine_tuning": trained}
        runs[run.name] = BENCHMARK.summary(run, reports)
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 4,
        "common_changes": ["loop.steps=9"],
        "seeds": [0, 1, 2], "languages": ["en", *LANGUAGES], "test_images": 300, "runs": runs,
    }  # fmt: skip


def as_m3p(figures: dict[str, Any], above: float) -> dict[str, Any]:
    """The same figures as M3P's, higher by so much."""
    copied = copy.deepcopy(figures)
    runs = {name.replace("UC2", "M3P"): run for name, run in copied["runs"].items()}
    for run in runs.values():
        for spread in run["test"]["all_pairs"].values():
            spread["mean"] += above
            spread["values"] = [value + above for value in spread["values"]]
    return {**copied, "runs": runs}


def row(table: str, begins: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {begins} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_rows_take_translate_test_from_the_run_on_english() -> None:
    found = figures(UC2_de=7.0, UC2_en=1.0)
    each = row(page.table(found, 1), "on each")
    assert each[:3] == ["32.0 ± 1.0", "28.0 ± 1.0", "21.0 ± 1.0"]
    assert each[-3] == "22.2 ± 1.0"  # others: (28 + 5 * 21) / 6
    assert each[-1] == "87.2, 78.5"
    translated = row(page.table(found, 1), "on English, translate-test")
    assert translated[:2] == ["35.5 ± 1.0", "25.5 ± 1.0"]
    assert row(page.table(found, 4), "English")[-1] == "86.2, 80.0"
    del found["runs"]["UC2 > ar"]
    assert row(page.table(found, 1), "on each")[-4:-1] == ["–", "–", "–"]


def test_incomplete_seeds_are_left_out() -> None:
    """Rows over different seeds would differ by chance."""
    found = figures()
    late = found["runs"]["UC2 > ar"]
    late["seeds"] = late["seeds"][:2]
    for spread in late["test"]["all_pairs"].values():
        spread["values"] = spread["values"][:2]
    complete = only_complete_seeds(found)
    assert {tuple(run["seeds"]) for run in complete["runs"].values()} == {(0, 1)}
    assert row(page.table(complete, 3), "without VTLM")[0] == "30.5 ± 0.7"
    ranks = complete["runs"]["UC2"]["early_adaptation"]["before"]["en"]["mean"]
    assert (ranks["mean"], ranks["values"]) == (480.5, [480.0, 481.0])
    assert "Seed 2 is left out: some runs do not have it yet." in how(complete)
    all_complete = figures()
    assert "left out" not in how(all_complete)
    assert "at abc1234 on an abacus: 17 runs, with 3 seeds each" in how(all_complete)
    assert "with up to 3 seeds each" in how(found)
    two = {**all_complete, "commits": {"abc1234": 40, "def5678": 11}}
    assert "at abc1234 and def5678, which train alike, on" in how(two)
    assert found["runs"]["UC2"]["seeds"] == [0, 1, 2]  # the input is not modified
    late["seeds"] = [7, 8]
    assert only_complete_seeds(found) == found


def test_claims_are_computed() -> None:
    found = figures(UC2_all=4.0, no_VTLM_all=5.0, no_VTLM_no_MRTM_all=1.0)
    lines = page.claims(found)

    def claim(start: str) -> str:
        (line,) = (line for line in lines if line.startswith(start))
        return line

    assert claim("Translate-test is above").endswith(
        "(the paper: +8.8): yes (+3.5 [+3.5, +3.5], p < 0.001)."
    )
    assert "(the paper: +6.3): not decided" in claim("Fine-tuning on each language is above")
    assert claim("VTLM helps").endswith("(the paper: +1.3): no (-1.0 [-1.0, -1.0], p < 0.001).")
    assert claim("Both help").endswith("(the paper: +2.0): yes (+3.0 [+3.0, +3.0], p < 0.001).")
    assert "(the paper: +1.9): yes (+5.0 [" in claim("Pivoting on pictures is above")
    assert claim("VTLM, in English itself").endswith(
        "(the paper: +0.7): a loss (-1.0 [-1.0, -1.0], p < 0.001)."
    )
    assert page.claims({**found, "runs": {}}) == []


def test_uc2_is_compared_with_m3p() -> None:
    found = figures(UC2_all=4.0)
    assert page.beside_m3p(found, None) == "M3P was not measured yet."
    text = page.beside_m3p(found, as_m3p(figures(), 1.5))
    assert "| on all | M3P | 32.5 ± 1.0 |" in text
    assert "| on all | UC2 | 35.0 ± 1.0 |" in text
    each = "1,800 steps (900 of early-adaptation, 900 of fine-tuning) in"
    assert f"- Pre-training: {each} 2.0 minutes for M3P, {each} 2.0 minutes for UC2" in text
    assert "- Fine-tuning on all languages: 900 steps in" in text
    # In the paper 84.45 and 79.125 in the mean of four languages.
    assert "Fine-tuned on all, UC2 is above M3P on average: yes (+2.5 [" in text
    assert "in its four languages: +5.3)" in text
    assert "Fine-tuned on English, UC2 is above M3P on average: no (-1.5 [" in text
    assert "Over these settings, UC2 is above M3P on average: no (-0.2 [" in text
    other = page.beside_m3p(found, {**as_m3p(found, 0), "test_images": 100})
    assert other == "The two cannot be compared: `test_images` was 100 for M3P and 300 for UC2."


def test_systems_are_compared_over_the_seeds_that_both_have() -> None:
    """Otherwise a difference would not match the rows above it."""
    found = figures()
    theirs = as_m3p(found, above=-2.0)
    for run in theirs["runs"].values():
        run["seeds"] = run["seeds"][:1]
        run["test"] = {"all_pairs": run["test"]["all_pairs"]}
        run.pop("early_adaptation", None)
        for spread in run["test"]["all_pairs"].values():
            spread["values"] = spread["values"][:1]
    text = page.beside_m3p(found, theirs)
    assert "| on all | UC2 | 30.0 | 20.0 |" in text
    assert "| on all | M3P | 28.0 | 18.0 |" in text
    assert "Fine-tuned on all, UC2 is above M3P on average: not decided, by one seed (+2.0;" in text
    assert "with other runs on the same machine" in text
    assert "other runs" not in page.beside_m3p({**found, "runs_at_once": 1}, theirs)


def test_filling_the_page_twice_changes_nothing(tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    found = figures()
    page.fill(found, document, m3p=as_m3p(found, 1.0))
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert "| without both | 31.0 ± 1.0 | 21.0 ± 1.0 |" in once
    assert "| en | before | 450.0 ± 0.0 | 481.0 ± 1.0 | 0.1 ± 0.0 |" in once
    assert "| en | after | 3.0 ± 0.0 | 21.0 ± 1.0 | 40.0 ± 0.0 |" in once
    assert "en 100%, de 62%" in once
    assert "Measured 2031-05-06 at abc1234 on an abacus: 17 runs" in once
    assert "All runs change the recipe by `loop.steps=9` (`--set`)." in once
    page.fill(found, document, m3p=as_m3p(found, 1.0))
    assert document.read_text(encoding="utf-8") == once

    drawn = ElementTree.parse(tmp_path / "images" / "uc2.svg").getroot()
    circles = [part for part in drawn if part.tag.endswith("circle")]
    # Four settings of UC2 and three of M3P, in eight columns and by their names.
    assert len(circles) == 7 * (8 + 1)
    assert sum(circle.get("fill") == "white" for circle in circles) == 3 * (8 + 1)
    named = [part.text for part in drawn if part.tag.endswith("text")]
    assert "UC2 on all 22.4" in named
    heights = [float(str(circle.get("cy"))) for circle in circles]
    assert min(heights) >= 0
    assert max(heights) < 340

    page.fill({**found, "runs": {"UC2 > all": found["runs"]["no VTLM"]}}, document)
    few = document.read_text(encoding="utf-8")
    assert "Not measured yet" in few
    assert "M3P was not measured yet." in few


def test_the_command_trains_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "own"))  # of translations
    command = BenchmarkCommand(BENCHMARK, tmp_path, monkeypatch, CHANGES)
    data = set((tmp_path / "data").rglob("*"))
    some = (
        "--keep-weights", "--languages", "de",
        "--only", "UC2 > en", "UC2 > de", "UC2 > all", "English pivot > all",
    )  # fmt: skip
    command(*some)
    found = command.results()
    assert set(found) == {
        "UC2", "UC2 > en", "UC2 > de", "UC2 > all", "English pivot",
        "English pivot > all",
    }  # fmt: skip
    assert found["UC2"]["test"] == {}
    assert set(found["UC2 > en"]["test"]) == {"all_pairs", "translated"}
    assert set(found["UC2 > de"]["test"]["all_pairs"]) == {"de", "average"}
    adapted = found["UC2"]["early_adaptation"]
    first, last = (adapted[when]["en"]["mean"]["mean"] for when in ("before", "after"))
    assert last < first
    assert found["UC2"]["steps"] == 42
    assert "| on English, translate-test |" in command.page()
    assert (tmp_path / "images" / "uc2.svg").is_file()
    assert set((tmp_path / "data").rglob("*")) == data
    for made in ("dictionaries-*/de-en.tsv", "aligned-*/en-de.tsv"):
        assert len(list((tmp_path / "cache").glob(made))) == 1

    # With a learning rate near 0, fine-tuned weights stay those of the pre-training.
    def max_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
        assert set(one) == set(other)
        return max(float(np.abs(one[name] - other[name]).max()) for name in one)

    tuned = command.weights("UC2-all", "fine_tuning")
    assert max_difference(tuned, command.weights("UC2", "pretraining")) < 1e-6
    assert max_difference(tuned, command.weights("English-pivot", "pretraining")) > 1e-3

    before = command.report_times()
    command(*some)
    assert command.report_times() == before
    command(*some, "--set", "fine_tuning.margin=0.3")
    retrained = {name for name, time in command.report_times().items() if time != before[name]}
    assert retrained == {
        "UC2-en", "UC2-de", "UC2-all", "English-pivot-all",
    }  # fmt: skip


class SequentialPool:
    """Replaces a pool of processes, each of which takes seconds to start."""

    def __init__(self, workers: int, **settings: Any) -> None:
        self.workers = workers

    def __enter__(self) -> SequentialPool:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def submit(self, function: Any, *arguments: Any) -> Future[None]:
        """Call a function with arguments that were pickled, as for another process."""
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        future: Future[None] = Future()
        future.set_result(function(*arguments))
        return future


def test_captions_are_aligned_once_before_parallel_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = BenchmarkCommand(BENCHMARK, tmp_path, monkeypatch, CHANGES)
    command("--languages", "de", "--only", "no VTLM")
    (alone,) = (tmp_path / "cache").glob("aligned-*/en-de.tsv")
    text = alone.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1 + 36  # a key, and a German caption of each picture
    alone.unlink()
    monkeypatch.setattr(uc2_flickr8k, "ProcessPoolExecutor", SequentialPool)
    command("--languages", "de", "--only", "no VTLM", "--jobs", 2)
    assert alone.read_text(encoding="utf-8") == text
