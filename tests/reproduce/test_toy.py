"""The toy world: every target's chain resolves, and its main row is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.reproduce.run import Options, reproduce, with_data
from polyglance.reproduce.target import find_target, paper, paper_names, target_names
from polyglance.reproduce.toy import Learned, ToySteps, reproduce_toy, toy_run
from polyglance.reproduce.toy_all import reproduce_all_toy
from polyglance.reproduce.toy_data import SMALLEST, make_toy_data
from polyglance.vision.store import FeatureStore

STEPS = ToySteps(stage=1)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toy")


def options(out: Path, *rows: str) -> Options:
    return Options(out=out, seeds=(0,), rows=rows)


@pytest.mark.parametrize("name", paper_names())
def test_every_run_is_a_valid_recipe_with_a_toy_version(name: str, tmp_path: Path) -> None:
    read, kept = paper(name), set()
    for run in read.plan():
        small = toy_run(  # opens the recipe with the run's own changes first
            with_data(run, tmp_path), read.runs[run.name], tmp_path, STEPS
        )
        if small is None:  # of a language that the toy world lacks
            assert any("=[" in change for change in run.changes)
            continue
        kept.add(run.name)
        changes = [change.replace("{parent}", "PARENT") for change in small.changes]
        settings = open_recipe(run.recipe or "", changes).settings
        assert settings.loop.steps <= 3
        if run.parent is not None:
            assert settings.initialise_from.startswith("PARENT")
        assert "dictionaries}" not in str(settings)
    for target in read.targets.values():
        if target.learning is not None:
            row = target.row(target.learning.row)
            runs = {row.run_of(column) for column in target.columns if row.run_of(column)}
            assert runs & kept


MEASURED = [name for name in target_names() if find_target(name)[1].measured]
ALSO = {"smalr/table2": ["SMALR-CLC-A"]}
"""Rows beside the main one, which no other target runs."""


@pytest.mark.parametrize("name", MEASURED)
def test_every_target_runs_on_toy_data(name: str, out: Path) -> None:
    """Its main row goes through data, regions, encoder, training, evaluation, table and plot.

    Targets share runs and the toy world, as with ``polyglance reproduce --toy --all``.
    """
    main = find_target(name)[1].learning
    assert main is not None
    rows = [main.row, *ALSO.get(name, ())]
    lines: list[str] = []
    result, learned = reproduce_toy(
        name, options(out, *rows), size=SMALLEST, steps=STEPS, progress=lines.append
    )
    assert learned is not None
    assert 0 <= learned.measured <= 100  # not nan: what the target must learn was measured
    assert 0 <= learned.chance < 100
    assert {path.name for path in result.files} >= {"table.json", "table.csv", "table.md"}
    content = json.loads((out / name / "table.json").read_text(encoding="utf-8"))
    assert content["toy"] is True
    assert [row["row"] for row in content["rows"]] == [r for r in _order(name) if r in rows]
    for row in content["rows"]:
        assert row["measured"], row["row"]
    assert "**Toy data**" in (out / name / "table.md").read_text(encoding="utf-8")


def _order(name: str) -> list[str]:
    return [row.name for row in find_target(name)[1].rows]


def test_a_finished_target_trains_nothing_again(out: Path) -> None:
    name, lines = "smalr/table2", []
    for _ in range(2):
        lines.clear()
        reproduce_toy(
            name, options(out, "SMALR"), size=SMALLEST, steps=STEPS, progress=lines.append
        )
    assert lines == []


def test_all_targets_are_summarised(out: Path) -> None:
    names = ["mmp/table1", "uc2/figure1"]  # one is not measured
    outcomes = reproduce_all_toy(
        options(out), names=names, size=SMALLEST, steps=STEPS, progress=lambda line: None
    )
    assert [outcome.target for outcome in outcomes] == ["mmp/table1"]
    one = json.loads((out / "toy-targets.json").read_text(encoding="utf-8"))["targets"][0]
    assert one["runs"] == 1  # its rows differ in encoders and networks, which toy data lack
    assert one["cpu_seconds"] > 0
    assert one["reached"] == (one["measured"] >= one["chance"] + one["margin"])
    page = (out / "toy-targets.md").read_text(encoding="utf-8")
    assert "| mmp/table1 | 1 |" in page
    assert "cores" in page


def test_regions_of_the_toy_world_have_labels(out: Path) -> None:
    data = make_toy_data(out.resolve() / "toy-data", SMALLEST)
    store = FeatureStore(data / "store")
    assert len(store) == SMALLEST.train + SMALLEST.validation + SMALLEST.test
    names = (data / "labels.tsv").read_text(encoding="utf-8").splitlines()
    english = [line.split("\t")[0] for line in names[1:]]
    for line in (data / "multi30k" / "test.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        tokens = store[Path(record["image"]).stem]
        assert english[int(tokens.label_ids[0, 0])] == record["captions"]["en"][0]
        assert tokens.label_probs[0].tolist() == pytest.approx([0.9, 0.1], abs=1e-3)


def test_learning_is_said_in_a_sentence() -> None:
    assert str(Learned("SMALR", 30.0, 8.9, 10)) == (
        "SMALR: 30.0, by chance 8.9; at least 10 above it: yes"
    )
    assert not Learned("SMALR", 18.0, 8.9, 10).reached
    assert not Learned("SMALR", float("nan"), 8.9, 10).reached


def test_missing_data_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="uc2/table4 needs its data: give --data FOLDER"):
        reproduce("uc2/table4", Options(out=tmp_path))
    with pytest.raises(DataError, match=r"Train_GCC-training\.tsv.*--data-needed"):
        reproduce("uc2/table4", Options(out=tmp_path, data=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_unknown_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match=r"no row 'x': its rows are UC2 \(image"):
        reproduce_toy("uc2/table4", options(tmp_path, "x"))


def test_published_tables_without_runs_are_written(tmp_path: Path) -> None:
    result = reproduce("mmp/table8", Options(out=tmp_path))
    text = (tmp_path / "mmp" / "table8" / "table.md").read_text(encoding="utf-8")
    assert "| English | – (1238911) |" in text
    assert len(result.files) == 4
    assert reproduce("uc2/figure1", Options(out=tmp_path)).files == []
    assert find_target("uc2/figure1")[1].instead
