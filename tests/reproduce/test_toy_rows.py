"""Rows on the toy world: all are built, and those that differ in the paper differ there too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polyglance.recipes import open_recipe
from polyglance.reproduce.run import needed_runs, with_data
from polyglance.reproduce.runs import Run
from polyglance.reproduce.target import Target, find_target, paper, target_names
from polyglance.reproduce.toy import ToySteps, toy_run
from polyglance.reproduce.toy_rows import leave_out_same

MEASURED = [name for name in target_names() if find_target(name)[1].measured]
DATA = Path("/toy")


def toy_plan(name: str) -> tuple[Target, list[Run]]:
    of, target = find_target(name)
    plan: list[Run] = []
    for run in needed_runs(target, of.plan()):
        if run.parent is None or run.parent in {one.name for one in plan}:
            small = toy_run(with_data(run, DATA), of.runs[run.name], DATA, ToySteps())
            plan += [] if small is None else [small]
    return target, plan


def settings(paper_name: str, run: str) -> Any:
    read = paper(paper_name)
    whole = next(one for one in read.plan() if one.name == run)
    small = toy_run(with_data(whole, DATA), read.runs[run], DATA, ToySteps())
    assert small is not None
    return open_recipe(small.recipe or "", small.changes).settings


@pytest.mark.parametrize("name", MEASURED)
def test_every_row_is_run_or_says_why_not(name: str) -> None:
    target, plan = toy_plan(name)
    noted, kept = leave_out_same(target, plan)
    assert target.learning is not None
    for row in noted.rows:
        runs = {row.run_of(column) for column in noted.columns if not column.mean_of} - {None}
        if row.name == target.learning.row:
            assert runs & kept
        if not runs <= kept:
            assert "not run on toy data" in row.note, row.name


def test_rows_of_encoders_layers_and_networks_are_not_told_apart() -> None:
    target, plan = toy_plan("mmp/table1")
    noted, kept = leave_out_same(target, plan)
    assert kept == {"vtt XLM-R"}
    assert noted.row("mBERT, R+S").note.endswith(
        "not run on toy data, where it is the same as 'XLM-R, R+S'"
    )
    assert not noted.row("XLM-R, R+S").note


def test_test_dev_and_val2014_are_the_same_questions() -> None:
    target, plan = toy_plan("uc2/table2")
    noted, kept = leave_out_same(target, plan)
    assert "full > vqa-v2 val2014" in {run.name for run in plan} - kept
    assert noted.row("UC2").note.endswith(
        "in part, not run on toy data, where it is the same as another of its runs"
    )


@pytest.mark.parametrize("name", ["smalr/figure3right", "smalr/exploration", "mmp/table3"])
def test_rows_that_differ_in_size_or_languages_stay_apart(name: str) -> None:
    target, plan = toy_plan(name)
    assert leave_out_same(target, plan)[1] == {run.name for run in plan}


def test_sizes_are_scaled() -> None:
    def config(run: str, field: str) -> Any:
        return settings("smalr", run).model_config[field]

    runs = [f"multi30k PCA {width}" for width in (50, 100, 200)]
    widths = [config(run, "own_width") for run in (*runs, "multi30k MULE")]
    assert widths == [4, 8, 16, 24]
    assert config("multi30k MULE", "own_words") is None
    assert config("multi30k Language-Agnostic", "own_words") == 0
    assert config("multi30k HEM", "own_words") == 40
    candidates = [config(f"multi30k M {count}", "candidates") for count in (1, 10, 40)]
    assert candidates == [1, 2, 8]


def test_translations_are_those_of_the_row() -> None:
    assert settings("mmp", "vtt de fr inter intra cross").languages == ("en", "de", "fr")
    assert set(settings("mmp", "vtt translated XLM-R").languages) > {"en", "de", "fr", "zh"}


def test_japanese_questions_are_translated_on_toy_data_too() -> None:
    translated = settings("uc2", "English only > vqa-vg-ja translated")
    assert [file.manifest for file in translated.train] == ["vqa-en/train.jsonl"]
    assert [file.manifest for file in translated.test] == ["vqa-ja/test.jsonl"]
    assert translated.translate_test == "dictionaries/{source}-{target}.tsv"
    plain = settings("uc2", "English only > vqa-v2")
    assert (plain.answers.classes, plain.test_classes) == (None, None)
