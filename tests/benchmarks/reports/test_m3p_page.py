"""The page of M3P on Flickr8k: its tables and claims."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.reports import m3p_page as page
from benchmarks.reports import seeds
from polyglance.reproduce.run import needed_runs
from polyglance.reproduce.summaries import cross_encoder_run
from polyglance.reproduce.target import find_target

LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")
PAPER, TARGET = find_target("flickr8k/m3p")
RUNS = needed_runs(TARGET, PAPER.plan())


def test_the_target_has_exactly_the_runs_of_the_tables() -> None:
    languages = ("en", *LANGUAGES)
    needed = {name for table in page.TABLES.values() for name in table.run_names(languages)}
    assert set(TARGET.runs()) == needed
    assert (len(RUNS), len(needed)) == (34, 26)


def figures(**recalls: float) -> dict[str, Any]:
    """Results with 30 mR in English and 20 elsewhere, plus what is given for a run."""
    runs = {}
    for run in RUNS:
        more = recalls.get(run.name.replace(" > ", "_").replace(" ", "_").replace("-", "_"), 0.0)
        reports = {}
        for seed in range(3):
            mean = {code: {"mR": 20 + more + seed} for code in LANGUAGES}
            measured = {"en": {"mR": 30 + more + seed}, **mean, "average": {"mR": 22 + more}}
            trained = {"seconds": 60.0, "steps": 900, "best_step": 500}
            reports[seed] = {"fine_tuning": trained, "test": {"all_pairs": measured}}
        runs[run.name] = cross_encoder_run(run.parent, reports)
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
    (lines,) = seeds.write_lines(page.claims(found))

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
    (written,) = seeds.write_lines(page.claims(found))
    lines = [line for line in written if "without fine-tuning" in line]
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
