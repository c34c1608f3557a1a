"""Reproductions of a target in parts give the table of all at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.recipes.retrieval_report import retrieval_report
from polyglance.recipes.run_folder import QUERIES, write_report
from polyglance.reproduce.merge import merge
from polyglance.reproduce.queries import write_queries
from polyglance.reproduce.results import Measured
from polyglance.reproduce.run import needed_runs, settings_fingerprints
from polyglance.reproduce.runs import Job, Report
from polyglance.reproduce.target import find_target
from polyglance.reproduce.write import as_json, write_files

NAME = "coco/uc2"
RUNS = ("UC2 > all", "no VTLM > all", "no MRTM > all")
IMAGES = 30
WHEN = {"date": "2026-11-18", "hardware": "a machine", "python": "3.11"}


def measure(folder: Path, jobs: list[Job], commit: str, **details: Any) -> Measured:
    """Write the files of a target as a reproduction of some runs does, by made-up ranks."""
    _, target = find_target(NAME)
    reports: dict[Job, Report] = {}
    folders: dict[Job, Path] = {}
    for run, seed in jobs:
        generator = np.random.default_rng([RUNS.index(run), seed])
        owners = np.repeat(np.arange(IMAGES), 2)
        languages = {}
        for code in ("en", "de", "fr", "cs", "pt", "zh", "ar"):
            scores = generator.normal(size=(IMAGES, len(owners))).astype(np.float32)
            scores[owners, np.arange(len(owners))] += 1 + 0.5 * RUNS.index(run)
            languages[code] = summarise(ranks_from_scores(scores, owners))
        path = folder / "runs" / run.replace(" ", "") / str(seed)
        write_report({"test": {"all_pairs": retrieval_report(languages)}}, path)
        reports[run, seed] = json.loads((path / "report.json").read_text(encoding="utf-8"))
        folders[run, seed] = path
    measured = Measured(target, reports, folders)
    seeds = sorted({seed for _, seed in jobs})
    settings = {run: "settings" for run, _ in jobs} | details.pop("settings", {})
    about = {**WHEN, "commit": commit, "seeds": seeds, "settings": settings, **details}
    write_files(measured, folder / NAME, about)
    write_queries(folders, measured.places, folder / NAME / QUERIES)
    return measured


def test_seeds_that_were_measured_apart_are_compared_as_if_together(tmp_path: Path) -> None:
    jobs = [(run, seed) for seed in (0, 1, 2) for run in RUNS]
    together = measure(tmp_path / "together", jobs, "abc")
    measure(tmp_path / "first", jobs[:3], "abc")
    measure(tmp_path / "others", jobs[3:], "def")
    files = merge(NAME, [tmp_path / "first", tmp_path / "others"], tmp_path / "merged")
    table = json.loads((tmp_path / "merged" / NAME / "table.json").read_text(encoding="utf-8"))
    expected = as_json(together, {})
    assert table["rows"] == expected["rows"]
    assert [claim["claim"] for claim in table["claims"]] == [
        "VTLM helps", "MRTM helps", "VTLM helps English itself", "MRTM helps English itself",
    ]  # fmt: skip
    for claim, other in zip(table["claims"], expected["claims"], strict=True):
        assert (claim["seeds"], claim["queries"], claim["over"]) == (3, 30, "seeds and queries")
        for name in ("mean", "low", "high", "p", "corrected_p"):
            assert claim[name] == pytest.approx(other[name])
    assert (table["commit"], table["seeds"]) == ("abc, def", [0, 1, 2])
    assert [part["seeds"] for part in table["parts"]] == [[0], [1, 2]]
    assert {path.name for path in files} == {
        "table.json", "table.csv", "table.md", "plot.svg", QUERIES,
    }  # fmt: skip
    # What was merged can be merged again, and still names its parts.
    measure(tmp_path / "later", [(RUNS[0], 3)], "ghi")
    merge(NAME, [tmp_path / "merged", tmp_path / "later"], tmp_path / "again")
    again = json.loads((tmp_path / "again" / NAME / "table.json").read_text(encoding="utf-8"))
    assert [part["commit"] for part in again["parts"]] == ["abc", "def", "ghi"]
    assert (again["commit"], again["seeds"]) == ("abc, def, ghi", [0, 1, 2, 3])
    counts = {row["row"]: len(row["measured"].get("en", {}).get("values", ())) for row in
              again["rows"]}  # fmt: skip
    assert counts["Table 3: pre-training: all four objectives"] == 4
    assert counts["Table 3: pre-training: without VTLM"] == 3


def test_rows_may_be_measured_apart_where_they_share_a_run(tmp_path: Path) -> None:
    together = measure(tmp_path / "together", [(run, 0) for run in RUNS], "abc")
    measure(tmp_path / "one", [(RUNS[0], 0), (RUNS[1], 0)], "abc")
    measure(tmp_path / "other", [(RUNS[0], 0), (RUNS[2], 0)], "abc")
    merge(NAME, [tmp_path / "one", tmp_path / "other"], tmp_path / "merged")
    table = json.loads((tmp_path / "merged" / NAME / "table.json").read_text(encoding="utf-8"))
    assert table["rows"] == as_json(together, {})["rows"]


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    one, other, out = tmp_path / "one", tmp_path / "other", tmp_path / "merged"
    measure(one, [(RUNS[0], 0)], "abc")
    table = other / NAME / "table.json"

    def refused(match: str, *folders: Path, error: type[PolyglanceError] = DataError) -> None:
        with pytest.raises(error, match=match):
            merge(NAME, folders, out)

    refused("name the folders", error=PolyglanceError)
    refused("there is no such file; give the --out", tmp_path / "nowhere")
    with pytest.raises(PolyglanceError, match="is one of the parts"):
        merge(NAME, [one], one)
    refused("there is no such file; give the --out", one / NAME / "table.json")
    measure(other, [(RUNS[0], 0)], "abc")
    found = json.loads(table.read_text(encoding="utf-8"))
    for row in found["rows"]:
        if row["measured"]:
            row["measured"]["en"]["values"]["0"] += 1
    table.write_text(json.dumps(found), encoding="utf-8")
    match = r"'UC2 > all' with seed 0 was measured differently in .*one and in .*other"
    refused(match, one, other, error=PolyglanceError)
    changed = {"settings": {RUNS[0]: "others"}, "changes": ["pretraining.steps=10"]}
    measure(other, [(RUNS[0], 1)], "abc", **changed)
    match = r"'UC2 > all' had other settings in .*one than in .*other .*pretraining\.steps=10"
    refused(match, one, other, error=PolyglanceError)
    measure(other, [(RUNS[0], 1)], "abc")
    (other / NAME / QUERIES).write_bytes(b"PK damaged")
    refused("cannot be read", one, other)
    (other / NAME / QUERIES).unlink()
    refused("lacks the ranks of 'UC2 > all' with seed 1", one, other)
    found = json.loads(table.read_text(encoding="utf-8"))
    found["rows"][0]["row"] = "another row"
    table.write_text(json.dumps(found), encoding="utf-8")
    refused("has a row 'another row', which coco/uc2 has not", one, other)
    for text, match in (
        ("{", "not valid JSON"),
        ("[]", r"no table of this version of 'polyglance reproduce'$"),
        ('{"rows": []}', r"it lacks date, commit, hardware, python, settings, seeds"),
    ):
        table.write_text(text, encoding="utf-8")
        refused(match, one, other)


def test_settings_are_the_same_wherever_data_lie_and_whatever_was_prepared(
    tmp_path: Path,
) -> None:
    paper, target = find_target(NAME)
    runs = needed_runs(target, paper.plan())

    def settings(place: str, prepared: str, *changes: str) -> dict[str, str]:
        data, out = tmp_path / place / "data", tmp_path / place / "out"
        own = [replace(run, changes=tuple(c.replace("{dictionaries}",
               f"{out}/cache/dictionaries-{prepared}/de.tsv") for c in run.changes))
               for run in runs]  # fmt: skip
        return settings_fingerprints(own, changes, data, out)

    one = settings("one", "abc1")
    assert set(one) == {run.name for run in runs}
    assert one == settings("other", "def2")
    changed = settings("one", "abc1", "max_regions=20")
    assert not set(one.items()) & set(changed.items())
    # Runs of one recipe with other changes, or from other parents, differ.
    assert len({one[name] for name in ("UC2", "no VTLM", "UC2 > all", "no VTLM > all")}) == 4


def test_the_command_merges(tmp_path: Path) -> None:
    measure(tmp_path / "one", [(RUNS[0], 0)], "abc")
    result = CliRunner().invoke(app, merging(tmp_path))
    assert result.exit_code == 0, result.output
    assert "| Table 3 | Table 3: pre-training: all four objectives |" in result.stdout


@pytest.mark.parametrize(
    "more",
    [("--seeds", "0"), ("--row", "x"), ("--data", "."), ("--set", "x=1"), ("--toy",),
     ("--jobs", "2"), ("--keep-weights",)],
)  # fmt: skip
def test_the_command_merges_and_takes_nothing_else(tmp_path: Path, more: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(app, [*merging(tmp_path), *more])
    assert isinstance(refused.exception, PolyglanceError)
    assert "give a target, --merge and --out alone" in str(refused.exception)


def merging(folder: Path) -> list[str]:
    return ["reproduce", NAME, "--merge", str(folder / "one"), "--out", str(folder / "all")]
