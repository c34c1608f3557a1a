"""Runs: their order, which are trained again, and what happens on failure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce.runs import Experiment, Job, Run

ROOT = Path(__file__).parents[2]
TRAINER = '''
import json, time
from pathlib import Path

def train(task):
    """Write a report and weights; fail, or wait for another run, as a file in data says."""
    begun = time.monotonic()
    name = task.folder.parent.name
    command = Path(task.data, name)
    if command.is_file() and command.read_text() == "fail":
        raise RuntimeError("this cannot be trained")
    if command.is_file() and command.read_text() == "meet":
        command.unlink()
        deadline = begun + 60
        while any(Path(task.data).iterdir()):  # until the other has begun as well
            if time.monotonic() > deadline:
                raise RuntimeError("the other run never began")
            time.sleep(0.01)
    (task.folder / "stage").mkdir(exist_ok=True)
    for file in ("model", "optimiser"):
        (task.folder / "stage" / f"{file}.safetensors").write_bytes(b"weights")
    report = {
        "name": name, "changes": task.changes, "begun": begun, "ended": time.monotonic(),
    }
    (task.folder / "report.json").write_text(json.dumps(report))
'''
"""Source of a module that a worker can import."""


PLAN = [
    Run("first", ("labels=11",)),
    Run("second", ("labels=12",)),
    Run("first > more", ("initialise_from={parent}/stage",), parent="first"),
    Run("first > more > most", ("initialise_from={parent}/stage",), parent="first > more"),
    Run("second > more", ("initialise_from={parent}/stage",), parent="second"),
]


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
    (tmp_path / "data").mkdir()
    (tmp_path / "toy_trainer.py").write_text(TRAINER)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("toy_trainer", None)
    import toy_trainer

    return Experiment(
        "m3p-flickr8k", tmp_path / "data", tmp_path / "runs", inputs={"code": "1"},
        changes=("dropout=0.3",), train=toy_trainer.train,
    )  # fmt: skip


def train(
    experiment: Experiment,
    *names: str,
    seeds: Sequence[int] = (0,),
    max_workers: int = 1,
    plan: Sequence[Run] = PLAN,
) -> list[Job]:
    """Train runs; return those that were trained now, in the order in which they finished."""
    wanted = [(name, seed) for name in names for seed in seeds]
    trained: list[Job] = []
    staged_runs.run_all(
        plan, wanted, experiment, max_workers=max_workers,
        on_finished=lambda job, reports: trained.append(job),
    )  # fmt: skip
    return trained


def test_runs_are_trained_after_their_parents(experiment: Experiment) -> None:
    chain = ["first", "first > more", "first > more > most"]
    assert train(experiment, chain[-1], seeds=(3, 1)) == [
        (name, seed) for seed in (3, 1) for name in chain
    ]
    report = json.loads((experiment.runs / "first-more-most" / "1" / "report.json").read_text())
    parent = experiment.runs.resolve() / "first-more" / "1"
    assert report["changes"] == ["dropout=0.3", f"initialise_from={parent}/stage", "loop.seed=1"]


def test_finished_runs_are_trained_again_only_if_something_changed(experiment: Experiment) -> None:
    both = ("first > more", "second > more")
    assert len(train(experiment, *both)) == 4
    assert train(experiment, *both) == []
    experiment = replace(
        experiment, runs=experiment.runs.rename(experiment.runs.with_name("moved"))
    )
    assert train(experiment, *both) == []
    changed = [replace(run, changes=("labels=13",)) if run.name == "first" else run for run in PLAN]
    assert train(experiment, *both, plan=changed) == [("first", 0), ("first > more", 0)]
    assert len(train(replace(experiment, inputs={"code": "2"}), *both)) == 4


def test_runs_are_counted_by_the_commit_that_trained_them(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(experiment, "first > more")
    monkeypatch.setenv("POLYGLANCE_COMMIT", "def5678")
    jobs = [("first", 0), ("first > more", 0), ("second", 0)]
    assert train(experiment, *(name for name, _ in jobs)) == [("second", 0)]
    assert staged_runs.count_commits(experiment, jobs) == {"abc1234": 2, "def5678": 1}


def test_only_weights_that_a_run_starts_from_are_kept(experiment: Experiment) -> None:
    def weights(name: str) -> set[str]:
        return {path.stem for path in (experiment.runs / name / "0").rglob("*.safetensors")}

    train(experiment, "first > more", "second > more")
    assert weights("first") == weights("first-more") == {"model"}
    assert weights("second-more") == set()
    shutil.rmtree(experiment.runs / "first-more" / "0" / "stage")
    assert train(experiment, "first > more") == []  # no wanted run starts from its weights
    assert train(experiment, "first > more > most") == [
        ("first > more", 0),
        ("first > more > most", 0),
    ]


def test_an_interrupted_run_resumes_in_its_folder(experiment: Experiment) -> None:
    train(experiment, "first")
    folder = experiment.runs / "first" / "0"
    (folder / "report.json").unlink()
    (folder / "checkpoint").touch()
    assert train(experiment, "first") == [("first", 0)]
    assert (folder / "checkpoint").exists()
    (folder / "report.json").unlink()
    train(replace(experiment, inputs={"code": "2"}), "first")
    assert not (folder / "checkpoint").exists()  # of other inputs


def test_workers_train_in_parallel_and_finish_what_they_began(experiment: Experiment) -> None:
    (experiment.data / "second").write_text("fail")
    with pytest.raises(RuntimeError, match="cannot be trained") as caught:
        train(experiment, "first > more", "second > more", max_workers=2)
    assert caught.value.__notes__ == ["in the run 'second', seed 0"]
    assert (experiment.runs / "first" / "0" / "report.json").exists()
    assert not (experiment.runs / "second-more").exists()
    for name in ("first", "second"):
        (experiment.data / name).write_text("meet")
    wanted = [(run.name, 1) for run in PLAN]
    reports = {name: report for (name, _), report in
               staged_runs.run_all(PLAN, wanted, experiment, max_workers=2).items()}  # fmt: skip
    assert list(reports) == [run.name for run in PLAN]
    for run in PLAN:
        if run.parent is not None:
            assert reports[run.name]["begun"] >= reports[run.parent]["ended"]
    assert reports["first"]["begun"] < reports["second"]["ended"]
    assert reports["second"]["begun"] < reports["first"]["ended"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_do_not_outlive_a_parent_that_ends(tmp_path: Path, number: int) -> None:
    """Ctrl-C reaches all processes of a terminal, and the worker works on for minutes."""
    (tmp_path / "long_work.py").write_text(
        "import os, pathlib, time\n\n"
        "def work(folder):\n"
        "    partial = pathlib.Path(folder, 'partial')\n"
        "    partial.write_text(str(os.getpid()))\n"
        "    partial.rename(pathlib.Path(folder, 'pid'))\n"
        "    time.sleep(300)\n"
    )
    (tmp_path / "parent.py").write_text(
        f"import sys\nsys.path += [{str(ROOT)!r}, {str(tmp_path)!r}]\n"
        "import long_work\nfrom polyglance.utils.child_processes import SpawnPool\n"
        "if __name__ == '__main__':\n"
        "    with SpawnPool(1) as pool:\n"
        f"        pool.submit(long_work.work, {str(tmp_path)!r}).result()\n"
    )
    command = [sys.executable, tmp_path / "parent.py"]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until((tmp_path / "pid").exists)
    worker = int((tmp_path / "pid").read_text())
    if number == signal.SIGKILL:
        parent.kill()
    else:
        os.killpg(parent.pid, number)
    said = parent.communicate(timeout=60)[1]
    assert said.count("Traceback") == (number == signal.SIGINT)  # its own
    wait_until(lambda: not is_running(worker))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_an_impossible_plan_is_refused(experiment: Experiment) -> None:
    misordered = [Run("b", parent="a"), Run("a")]
    with pytest.raises(ValueError, match="b starts from a, which is not before it"):
        staged_runs.run_all(misordered, [("b", 0)], experiment)
    same_folder = [Run("a > b"), Run("a, b")]
    with pytest.raises(ValueError, match="same folder"):
        staged_runs.run_all(same_folder, [("a > b", 0)], experiment)


def test_the_code_of_a_recipe_is_what_it_imports() -> None:
    names = {
        "/".join(path.parts[-2:])
        for path in staged_runs.source_files("polyglance.recipes.m3p.train")
    }
    assert {"m3p/train.py", "models/m3p.py", "nn/packing.py", "training/loop.py"} <= names
    assert not any(name.startswith(("cli/", "search/")) for name in names)
    assert "models/smalr.py" in {
        "/".join(path.parts[-2:])
        for path in staged_runs.source_files("polyglance.recipes.smalr.train")
    }
