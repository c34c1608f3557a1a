"""Reproductions of a target in parts give the table of all at once."""

from __future__ import annotations

import json
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
    about = {**WHEN, "commit": commit, "seeds": sorted({seed for _, seed in jobs}), **details}
    write_files(measured, folder / NAME, about)
    write_queries(folders, measured.places, folder / NAME / QUERIES)
    return measured


def test_seeds_that_were_measured_apart_are_compared_as_if_together(tmp_path: Path) -> None:
    jobs = [(run, seed) for seed in (0, 1, 2) for run in RUNS]
    together = measure(tmp_path / "together", jobs, "abc")
    first = ["dictionaries=OUT/cache/dictionaries-1/de-en.tsv"]  # each prepares its own
    measure(tmp_path / "first", jobs[:3], "abc", changes=first)
    measure(tmp_path / "others", jobs[3:], "def", changes=[])
    made = merge(NAME, [tmp_path / "first", tmp_path / "others"], tmp_path / "merged")
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
    # What was merged can be merged again.
    measure(tmp_path / "later", [(RUNS[0], 3)], "ghi")
    merge(NAME, [tmp_path / "merged", tmp_path / "later"], tmp_path / "again")
    (row,) = (row for row in made.measured.target.rows if row.name.endswith("four objectives"))
    assert len(made.measured.cell(row.name, "en")) == 3


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    measure(one, [(RUNS[0], 0)], "abc")
    measure(other, [(RUNS[0], 0)], "abc")
    with pytest.raises(
        PolyglanceError, match=r"'UC2 > all' with seed 0 is in .*one and in .*other"
    ):
        merge(NAME, [one, other], tmp_path / "merged")
    measure(other, [(RUNS[0], 1)], "abc", changes=["pretraining.steps=10"])
    with pytest.raises(PolyglanceError, match=r"as the recipe.*pretraining\.steps=10"):
        merge(NAME, [one, other], tmp_path / "merged")
    with pytest.raises(DataError, match="there is no such file; give the --out"):
        merge(NAME, [tmp_path / "nowhere"], tmp_path / "merged")
    (other / NAME / "table.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="no table of 'polyglance reproduce'"):
        merge(NAME, [other], tmp_path / "merged")


def test_the_command_merges_and_takes_nothing_else(tmp_path: Path) -> None:
    measure(tmp_path / "one", [(RUNS[0], 0)], "abc")
    command = ["reproduce", NAME, "--merge", str(tmp_path / "one"), "--out", str(tmp_path / "all")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "| Table 3 | Table 3: pre-training: all four objectives |" in result.stdout
    refused = CliRunner().invoke(app, [*command, "--seeds", "0"])
    assert isinstance(refused.exception, PolyglanceError)
    assert "alone" in str(refused.exception)
