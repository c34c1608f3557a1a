"""Runs of one recipe that start from one another: each once, in order, several at a time.

A benchmark lists its runs: the recipe with a few settings changed, and for each the
run that it starts from. `run_all` makes those that are asked for with those before
them, in worker processes. A run that finished before by the same settings, code and
data, and after the same run, is not made again; one that was interrupted goes on from
its last checkpoint. Folders are ``RUNS/NAME/SEED``.
"""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results_io import circumstances

AFTER = "{after}"
"""In the changes of a run: the folder of the run that it starts from, of the same seed."""

SAVE = "loop.save_every=1000"
"""Recipes save at the end alone; a benchmark of hours should survive an interruption."""

Job = tuple[str, int]
"""The name of a run, and a seed."""
Report = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A recipe with settings changed, such as ``initialise_from={after}/pretraining``."""

    name: str
    changes: tuple[str, ...] = ()
    after: str | None = None
    """The run that must be there before."""


@dataclass(frozen=True)
class Task:
    """What a worker is told of one run."""

    recipe: str
    changes: tuple[str, ...]
    data: Path
    folder: Path
    device: str


def train(task: Task) -> None:
    """Train and measure by a recipe, which leaves ``report.json``."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(task.recipe, task.changes)
    recipe.run(task.data, task.folder, device=task.device)


@dataclass(frozen=True)
class Workshop:
    """What all runs of a benchmark have in common."""

    recipe: str
    data: Path
    runs: Path
    device: str = "cpu"
    changes: tuple[str, ...] = ()
    """In the recipe, for every run; a run's own come after them."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    """What decides a run beside its settings: see `fingerprints`."""
    make: Callable[[Task], None] = train
    keep_weights: bool = False
    """Those that no run starts from as well."""
    leaves: tuple[str, ...] = ("report.json",)
    """Files of a run that is finished."""

    def folder(self, job: Job) -> Path:
        """Where a run lies."""
        return self.runs.resolve() / re.sub(r"[^\w.+-]+", "-", job[0]) / str(job[1])


def run_all(
    plan: Sequence[Run],
    wanted: Iterable[Job],
    shop: Workshop,
    *,
    at_once: int = 1,
    finished: Callable[[Job, dict[Job, Report]], None] = lambda job, reports: None,
) -> dict[Job, Report]:
    """Make some runs of a plan and all that they start from; returns their reports.

    ``finished`` hears of each as it is made, with all reports that there are by then.
    Seeds go one after another as far as runs need not wait. Weights that no run of the plan
    starts from are removed, unless they are to be kept. When a run fails, those under way
    end, no other begins, and the error is raised.
    """
    stages = _Stages(plan, shop)
    jobs = stages.with_those_before(wanted)
    todo = stages.unfinished(jobs)
    reports = {job: stages.report(job) for job in jobs if job not in todo}

    def done(job: Job) -> None:
        reports[job] = stages.report(job)
        finished(job, reports)

    if at_once == 1:
        for job in todo:
            _make(stages, job, shop.make)
            done(job)
    elif todo:
        _in_workers(stages, todo, shop.make, at_once, done)
    return {job: reports[job] for job in jobs}


class _Stages:
    """A plan and what there is of it on disk."""

    def __init__(self, plan: Sequence[Run], shop: Workshop) -> None:
        self.runs = {run.name: run for run in plan}
        self.shop = shop
        self._identities: dict[Job, dict[str, str]] = {}
        for number, run in enumerate(plan):
            if run.after is not None and run.after not in [r.name for r in plan[:number]]:
                raise ValueError(f"{run.name} comes after {run.after}, which is not before it")
        if len({shop.folder((name, 0)) for name in self.runs}) != len(plan):
            raise ValueError("two runs of the plan would have the same folder")

    def before(self, job: Job) -> Job | None:
        """The run that one starts from."""
        after = self.runs[job[0]].after
        return None if after is None else (after, job[1])

    def with_those_before(self, wanted: Iterable[Job]) -> list[Job]:
        """These and all that they start from, by seed in the order of the plan."""
        found: dict[Job, None] = {}
        seeds: dict[int, None] = {}
        for job in wanted:
            seeds[job[1]] = None
            step: Job | None = job
            while step is not None:
                found[step] = None
                step = self.before(step)
        return [(name, seed) for seed in seeds for name in self.runs if (name, seed) in found]

    def unfinished(self, jobs: Sequence[Job]) -> list[Job]:
        """Those to be made, and those whose weights are gone that one of them starts from."""
        missing = {job for job in jobs if not self._is_there(job)}
        for job in reversed(jobs):  # what comes after a run is looked at before it
            before = self.before(job)
            if job in missing and before is not None and not self._weights(before):
                missing.add(before)
        return [job for job in jobs if job in missing]

    def task(self, job: Job) -> Task:
        """What is to be done, with the folder of the run before in its settings."""
        before = self.before(job)
        shop = self.shop
        changes = self._changes(job, "" if before is None else str(shop.folder(before)))
        return Task(shop.recipe, changes, shop.data, shop.folder(job), shop.device)

    def identity(self, job: Job) -> dict[str, str]:
        """What decides a run: settings, code, data, and all of that of the run before."""
        from polyglance.config import dump
        from polyglance.recipes import open_recipe
        from polyglance.recipes.keys import fingerprint

        if job not in self._identities:
            before = self.before(job)
            # By its name: the same runs in another folder are the same.
            changes = self._changes(job, "" if before is None else before[0])
            self._identities[job] = {
                "recipe": dump(open_recipe(self.shop.recipe, changes).settings),
                "after": "" if before is None else fingerprint(self.identity(before)),
                **self.shop.made_from,
            }
        return self._identities[job]

    def report(self, job: Job) -> Report:
        """What a finished run measured."""
        text = (self.shop.folder(job) / "report.json").read_text(encoding="utf-8")
        report: Report = json.loads(text)
        return report

    def tidy(self, job: Job) -> None:
        """Remove gigabytes: all weights where no run starts from them, else the optimiser's."""
        started_from = any(run.after == job[0] for run in self.runs.values())
        wanted = started_from or self.shop.keep_weights
        for path in self.shop.folder(job).rglob("*.safetensors"):
            if not wanted or path.stem == "optimiser":
                path.unlink()

    def _changes(self, job: Job, before: str) -> tuple[str, ...]:
        own = (change.replace(AFTER, before) for change in self.runs[job[0]].changes)
        return (*self.shop.changes, *own, f"loop.seed={job[1]}")

    def _is_there(self, job: Job) -> bool:
        folder = self.shop.folder(job)
        left = all((folder / name).is_file() for name in self.shop.leaves)
        return left and same_making(folder, self.identity(job))

    def _weights(self, job: Job) -> bool:
        return any(self.shop.folder(job).rglob("model.safetensors"))


def _make(stages: _Stages, job: Job, make: Callable[[Task], None]) -> None:
    """One run, here: from the beginning if what is there is of another making."""
    _prepare(stages, job)
    make(stages.task(job))
    stages.tidy(job)


def _prepare(stages: _Stages, job: Job) -> None:
    folder, identity = stages.shop.folder(job), stages.identity(job)
    if (folder / "report.json").exists() or not same_making(folder, identity):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note_making(folder, identity)


def _in_workers(
    stages: _Stages,
    todo: Sequence[Job],
    make: Callable[[Task], None],
    at_once: int,
    done: Callable[[Job], None],
) -> None:
    """Runs in fresh processes, each as soon as there is room and the run before it is done."""
    fresh = multiprocessing.get_context("spawn")  # a forked process cannot use accelerators
    waiting, failed = list(todo), None
    with ProcessPoolExecutor(
        min(at_once, len(todo)), mp_context=fresh, initializer=end_with_parent
    ) as pool:
        running: dict[Future[None], Job] = {}
        while running or (waiting and not failed):
            held_up = {*waiting, *running.values()}
            for job in [job for job in waiting if stages.before(job) not in held_up]:
                if failed or len(running) == at_once:
                    break
                waiting.remove(job)
                _prepare(stages, job)
                running[pool.submit(make, stages.task(job))] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                if error := future.exception():
                    error.add_note(f"in the run {job[0]!r}, seed {job[1]}")
                    failed = failed or error
                else:
                    stages.tidy(job)
                    done(job)
    if failed:
        raise failed


def end_with_parent() -> None:
    """A worker whose parent was killed must not go on writing into the folders of runs."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def note_making(folder: Path, identity: Mapping[str, str]) -> None:
    """Write what a run is made from beside it."""
    noted = {**circumstances(), **identity}
    (folder / "made-from.json").write_text(json.dumps(noted, indent=1), encoding="utf-8")


def made(folder: Path) -> dict[str, str]:
    """When, at which commit and on which machine a run was made: another may read its reports."""
    noted = json.loads((folder / "made-from.json").read_text(encoding="utf-8"))
    return {name: noted[name] for name in circumstances() if name in noted}


def commits(shop: Workshop, jobs: Iterable[Job]) -> dict[str, int]:
    """How many runs each commit made: some may be older than what reads their reports."""
    return dict(sorted(Counter(made(shop.folder(job))["commit"] for job in jobs).items()))


def same_making(folder: Path, identity: Mapping[str, str]) -> bool:
    """Whether a run was made from just this; another commit of the same code makes the same."""
    path = folder / "made-from.json"
    if not path.is_file():
        return False
    noted = json.loads(path.read_text(encoding="utf-8"))
    return all(noted.get(name) == value for name, value in identity.items())


def fingerprints(kind: str, **parts: Iterable[Path]) -> dict[str, str]:
    """Of the code of a kind of recipe, and by name of files and folders that it reads."""
    from polyglance.recipes import KINDS
    from polyglance.recipes.keys import fingerprint

    code = fingerprint(*code_of(KINDS[kind][0]))
    return {"code": code, **{name: fingerprint(*paths) for name, paths in parts.items()}}


def model_files(name: str | None) -> list[Path]:
    """What fingerprints a model that runs begin with, by name or folder, if there is one."""
    from polyglance.encoders.model_folder import find

    return [] if name is None else [find(name)]


def code_of(module: str) -> list[Path]:
    """The files of our package that a module imports, at any time and at any remove.

    Code that a recipe never reaches may change without its runs being made again; the
    package itself, which offers everything to others, leads nowhere.
    """
    import polyglance

    package = Path(polyglance.__file__).parent
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        place = package.parent.joinpath(*name.split("."))
        files = [p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()]
        if name in found or not name.startswith(f"{package.name}.") or not files:
            continue
        found[name] = files[0]
        for node in ast.walk(ast.parse(files[0].read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    return sorted(found.values())
