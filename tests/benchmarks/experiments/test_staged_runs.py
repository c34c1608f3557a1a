"""Runs that start from one another: their order, what is made again, what stops and goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from polyglance.recipes import KINDS

ROOT = Path(__file__).parents[3]
MAKER = '''
import json, time
from pathlib import Path

def make(task):
    """Leave a report of when, and weights; fail, or meet another, as a file in data says."""
    begun = time.monotonic()
    name = task.folder.parent.name
    said = Path(task.data, name)
    if said.is_file() and said.read_text() == "fail":
        raise RuntimeError("this cannot be made")
    if said.is_file() and said.read_text() == "meet":
        said.unlink()
        deadline = begun + 60
        while any(Path(task.data).iterdir()):  # until the other has begun as well
            if time.monotonic() > deadline:
                raise RuntimeError("the other never came")
            time.sleep(0.01)
    (task.folder / "stage").mkdir(exist_ok=True)
    for file in ("model", "optimiser"):
        (task.folder / "stage" / f"{file}.safetensors").write_bytes(b"weights")
    report = {
        "name": name, "changes": task.changes, "begun": begun, "ended": time.monotonic(),
    }
    (task.folder / "report.json").write_text(json.dumps(report))
'''
"""In a module of its own, which a worker can import."""


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from benchmarks.experiments import staged_runs

    return staged_runs


@pytest.fixture
def plan(staged: ModuleType) -> list[Any]:
    run = staged.Run
    begin = "initialise_from={after}/stage"
    return [
        run("first", ("labels=11",)),
        run("second", ("labels=12",)),
        run("first > more", (begin,), after="first"),
        run("first > more > most", (begin,), after="first > more"),
        run("second > more", (begin,), after="second"),
    ]


@pytest.fixture
def shop(staged: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
    (tmp_path / "data").mkdir()
    (tmp_path / "toy_maker.py").write_text(MAKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("toy_maker", None)
    import toy_maker

    return staged.Workshop(
        "m3p-flickr8k", tmp_path / "data", tmp_path / "runs", made_from={"code": "1"},
        changes=("dropout=0.3",), make=toy_maker.make,
    )  # fmt: skip


@pytest.fixture
def made(staged: ModuleType, plan: list[Any]) -> Callable[..., list[tuple[str, int]]]:
    """Make runs, and say which were made now, in the order in which they were done."""

    def make(
        shop: Any, *names: str, seeds: Sequence[int] = (0,), at_once: int = 1, runs: Any = plan
    ) -> list[tuple[str, int]]:
        wanted = [(name, seed) for name in names for seed in seeds]
        done: list[tuple[str, int]] = []
        staged.run_all(
            runs, wanted, shop, at_once=at_once, finished=lambda job, reports: done.append(job)
        )
        return done

    return make


Made = Callable[..., list[tuple[str, int]]]


def test_a_run_comes_after_those_that_it_starts_from(shop: Any, made: Made) -> None:
    line = ["first", "first > more", "first > more > most"]
    assert made(shop, line[-1], seeds=(3, 1)) == [(name, seed) for seed in (3, 1) for name in line]
    report = json.loads((shop.runs / "first-more-most" / "1" / "report.json").read_text())
    before = shop.runs.resolve() / "first-more" / "1"
    assert report["changes"] == ["dropout=0.3", f"initialise_from={before}/stage", "loop.seed=1"]


def test_what_is_there_is_not_made_again_unless_it_would_be_another(
    shop: Any, made: Made, plan: list[Any]
) -> None:
    both = ("first > more", "second > more")
    assert len(made(shop, *both)) == 4
    assert made(shop, *both) == []
    assert made(replace(shop, runs=shop.runs.rename(shop.runs.with_name("moved"))), *both) == []
    shop = replace(shop, runs=shop.runs.with_name("moved"))
    changed = [replace(run, changes=("labels=13",)) if run.name == "first" else run for run in plan]
    assert made(shop, *both, runs=changed) == [("first", 0), ("first > more", 0)]
    assert len(made(replace(shop, made_from={"code": "2"}), *both)) == 4


def test_runs_of_an_older_commit_stay_its_own(
    shop: Any, made: Made, staged: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(shop, "first > more")
    monkeypatch.setenv("POLYGLANCE_COMMIT", "def5678")
    jobs = [("first", 0), ("first > more", 0), ("second", 0)]
    assert made(shop, *(name for name, _ in jobs)) == [("second", 0)]
    assert staged.commits(shop, jobs) == {"abc1234": 2, "def5678": 1}


def test_weights_are_kept_as_long_as_a_run_of_the_plan_starts_from_them(
    shop: Any, made: Made
) -> None:
    def weights(name: str) -> set[str]:
        return {path.stem for path in (shop.runs / name / "0").rglob("*.safetensors")}

    made(shop, "first > more", "second > more")
    assert weights("first") == weights("first-more") == {"model"}
    assert weights("second-more") == set()
    shutil.rmtree(shop.runs / "first-more" / "0" / "stage")
    assert made(shop, "first > more") == []  # nothing asks for its weights
    assert made(shop, "first > more > most") == [("first > more", 0), ("first > more > most", 0)]


def test_an_interrupted_run_goes_on_in_its_folder(shop: Any, made: Made) -> None:
    made(shop, "first")
    folder = shop.runs / "first" / "0"
    (folder / "report.json").unlink()
    (folder / "checkpoint").touch()
    assert made(shop, "first") == [("first", 0)]
    assert (folder / "checkpoint").exists()
    (folder / "report.json").unlink()
    made(replace(shop, made_from={"code": "2"}), "first")
    assert not (folder / "checkpoint").exists()  # of another making


def test_workers_make_several_at_once_and_end_what_they_began(
    shop: Any, made: Made, staged: ModuleType, plan: list[Any]
) -> None:
    (shop.data / "second").write_text("fail")
    with pytest.raises(RuntimeError, match="cannot be made") as caught:
        made(shop, "first > more", "second > more", at_once=2)
    assert caught.value.__notes__ == ["in the run 'second', seed 0"]
    assert (shop.runs / "first" / "0" / "report.json").exists()
    assert not (shop.runs / "second-more").exists()
    for name in ("first", "second"):
        (shop.data / name).write_text("meet")
    wanted = [(run.name, 1) for run in plan]
    found = {name: report for (name, _), report in
             staged.run_all(plan, wanted, shop, at_once=2).items()}  # fmt: skip
    assert list(found) == [run.name for run in plan]
    for run in plan:
        if run.after is not None:
            assert found[run.name]["begun"] >= found[run.after]["ended"]
    assert found["first"]["begun"] < found["second"]["ended"]
    assert found["second"]["begun"] < found["first"]["ended"]


def test_workers_do_not_outlive_a_killed_parent(staged: ModuleType, tmp_path: Path) -> None:
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
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "import long_work\nfrom benchmarks.experiments import staged_runs\n"
        "if __name__ == '__main__':\n"
        "    fresh = multiprocessing.get_context('spawn')\n"
        "    with ProcessPoolExecutor(1, fresh, staged_runs.end_with_parent) as pool:\n"
        f"        pool.submit(long_work.work, {str(tmp_path)!r}).result()\n"
    )
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"])
    wait_until((tmp_path / "pid").exists)
    worker = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(worker))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(process: int) -> bool:
    """A zombie, which nobody has asked after, runs no more."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_plan_that_cannot_be_followed_is_refused(staged: ModuleType, shop: Any) -> None:
    late = [staged.Run("b", after="a"), staged.Run("a")]
    with pytest.raises(ValueError, match="b comes after a, which is not before it"):
        staged.run_all(late, [("b", 0)], shop)
    alike = [staged.Run("a > b"), staged.Run("a, b")]
    with pytest.raises(ValueError, match="same folder"):
        staged.run_all(alike, [("a > b", 0)], shop)


def test_the_code_of_a_recipe_is_what_it_can_reach(staged: ModuleType) -> None:
    names = {"/".join(path.parts[-2:]) for path in staged.code_of(KINDS["m3p"][0])}
    assert {"pairs/m3p.py", "models/m3p.py", "nn/packing.py", "training/loop.py"} <= names
    assert not any(name.startswith(("cli/", "search/")) for name in names)
    assert "models/smalr.py" in {
        "/".join(path.parts[-2:]) for path in staged.code_of(KINDS["words"][0])
    }
