"""The page of UC2 on Flickr8k: its tables and claims, and UC2 beside M3P."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.reports import seeds
from benchmarks.reports import uc2_page as page
from benchmarks.reports.cross_encoder_tables import how, only_complete_seeds
from polyglance.reproduce.run import needed_runs
from polyglance.reproduce.summaries import cross_encoder_run
from polyglance.reproduce.target import find_target

LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")
PAPER, TARGET = find_target("flickr8k/uc2")
RUNS = needed_runs(TARGET, PAPER.plan())


def test_the_target_has_exactly_the_runs_of_the_tables() -> None:
    languages = ("en", *LANGUAGES)
    needed = {name for table in page.TABLES.values() for name in table.run_names(languages)}
    assert set(TARGET.runs()) == needed
    assert (len(RUNS), len(needed)) == (17, 12)
    assert set(page.PAPER) == {s for table in page.TABLES.values() for s in table.rows.values()}


def figures(**recalls: float) -> dict[str, Any]:
    """Results with 30 mR in English and 20 elsewhere, plus what is given for a run."""
    runs = {}
    for run in RUNS:
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
        runs[run.name] = cross_encoder_run(run.parent, reports)
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
    (lines,) = seeds.write_lines(page.claims(found))

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


def beside_m3p(figures: dict[str, Any], m3p: dict[str, Any] | None) -> str:
    table, lines = page.beside_m3p(figures, m3p)
    (written,) = seeds.write_lines(lines)
    return "\n- ".join([table, *written])


def test_uc2_is_compared_with_m3p() -> None:
    found = figures(UC2_all=4.0)
    assert beside_m3p(found, None) == "M3P was not measured yet."
    text = beside_m3p(found, as_m3p(figures(), 1.5))
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
    other = beside_m3p(found, {**as_m3p(found, 0), "test_images": 100})
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
    text = beside_m3p(found, theirs)
    assert "| on all | UC2 | 30.0 | 20.0 |" in text
    assert "| on all | M3P | 28.0 | 18.0 |" in text
    assert "Fine-tuned on all, UC2 is above M3P on average: not decided, by one seed (+2.0;" in text
    assert "with other runs on the same machine" in text
    assert "other runs" not in beside_m3p({**found, "runs_at_once": 1}, theirs)


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
