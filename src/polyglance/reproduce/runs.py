"""Train runs that may start from one another, each once and several at a time.

A plan lists its runs: a recipe with a few changes, and for each the run that it starts from.
`run_all` trains those that are asked for, and their parents, in worker processes. A run that
finished before from the same settings, code, data and parent is not trained again; one that was
interrupted resumes from its last checkpoint. Folders are ``RUNS/NAME/SEED``.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyglance.reproduce.environment import environment
from polyglance.utils.child_processes import SpawnPool

if TYPE_CHECKING:
    from polyglance.recipes import Recipe

PARENT = "{parent}"
"""In the changes of a run: the folder of the run that it starts from, with the same seed."""

SAVE = "loop.save_every=1000"
"""Recipes save at the end only; an experiment of hours should survive an interruption."""

COST = "cost.json"
"""In the folder of a run: seconds of processor time, of all threads, since it last began."""

Job = tuple[str, int]
"""The name of a run, and a seed."""
Report = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A recipe with changes, such as ``initialise_from={parent}/pretraining``."""

    name: str
    changes: tuple[str, ...] = ()
    parent: str | None = None
    """The name of the run that it starts from."""
    recipe: str | None = None
    """None for the experiment's."""


@dataclass(frozen=True)
class TrainingJob:
    """What a worker needs to train one run."""

    recipe: str
    changes: tuple[str, ...]
    data: Path
    folder: Path
    device: str


def train(job: TrainingJob) -> None:
    """Train and evaluate by a recipe, which writes ``report.json``; note the processor's time."""
    from polyglance.recipes import open_recipe

    started = time.process_time()
    recipe = open_recipe(job.recipe, job.changes)
    recipe.train(job.data, job.folder, device=job.device)
    seconds = round(time.process_time() - started, 1)
    (job.folder / COST).write_text(json.dumps({"cpu_seconds": seconds}), encoding="utf-8")


@dataclass(frozen=True)
class Experiment:
    """What all runs of an experiment have in common."""

    recipe: str
    """Of runs that name none."""
    data: Path
    runs: Path
    device: str = "cpu"
    changes: tuple[str, ...] = ()
    """Changes to the recipe for every run; a run's own come after them."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of what determines a run beside its settings."""
    fingerprint_inputs: Callable[[Recipe], Mapping[str, str]] | None = None
    """The same for each run by its recipe."""
    train: Callable[[TrainingJob], None] = train
    keep_weights: bool = False
    """Keep also the weights that no run starts from."""
    outputs: tuple[str, ...] = ("report.json",)
    """Files that a finished run has."""

    def folder(self, job: Job) -> Path:
        """Return the folder of a run."""
        return self.runs.resolve() / folder_name(job[0]) / str(job[1])


def folder_name(run: str) -> str:
    """Return the name of a run as the name of a folder."""
    return re.sub(r"[^\w.+-]+", "-", run)


def run_all(
    plan: Sequence[Run],
    wanted: Iterable[Job],
    experiment: Experiment,
    *,
    max_workers: int = 1,
    on_finished: Callable[[Job, dict[Job, Report]], None] = lambda job, reports: None,
) -> dict[Job, Report]:
    """Train some runs of a plan and all that they start from.

    Runs of one seed come before those of the next as far as none has to wait. Weights that no run
    of the plan starts from are deleted, unless the experiment keeps them. When a run fails, those
    in progress finish, no other begins, and the error is raised.

    Args:
        plan: All runs; a parent comes before the runs that start from it.
        wanted: The runs to train.
        experiment: What the runs have in common.
        max_workers: Runs at a time; 1 trains in this process.
        on_finished: Called after each run with all reports that there are by then.

    Returns:
        The reports of the wanted runs and of those that they start from.
    """
    state = _PlanState(plan, experiment)
    jobs = state.with_parents(wanted)
    todo = state.unfinished(jobs)
    reports = {job: state.report(job) for job in jobs if job not in todo}

    def finish(job: Job) -> None:
        reports[job] = state.report(job)
        on_finished(job, reports)

    if max_workers == 1:
        for job in todo:
            _prepare_folder(state, job)
            experiment.train(state.training_job(job))
            state.delete_unneeded_weights(job)
            finish(job)
    elif todo:
        _run_in_workers(state, todo, max_workers, finish)
    return {job: reports[job] for job in jobs}


class _PlanState:
    """A plan, and which of its runs are finished on disk."""

    def __init__(self, plan: Sequence[Run], experiment: Experiment) -> None:
        self.runs = {run.name: run for run in plan}
        self.experiment = experiment
        self._provenance: dict[Job, dict[str, str]] = {}
        for number, run in enumerate(plan):
            if run.parent is not None and run.parent not in [r.name for r in plan[:number]]:
                raise ValueError(f"{run.name} starts from {run.parent}, which is not before it")
        if len({experiment.folder((name, 0)) for name in self.runs}) != len(plan):
            raise ValueError("two runs of the plan would have the same folder")

    def parent(self, job: Job) -> Job | None:
        """Return the run that one starts from."""
        parent = self.runs[job[0]].parent
        return None if parent is None else (parent, job[1])

    def with_parents(self, wanted: Iterable[Job]) -> list[Job]:
        """Return these and all that they start from, by seed in the order of the plan."""
        needed: set[Job] = set()
        seeds: dict[int, None] = {}
        for job in wanted:
            seeds[job[1]] = None
            ancestor: Job | None = job
            while ancestor is not None:
                needed.add(ancestor)
                ancestor = self.parent(ancestor)
        return [(name, seed) for seed in seeds for name in self.runs if (name, seed) in needed]

    def unfinished(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the runs to train, and parents of these whose weights were deleted."""
        missing = {job for job in jobs if not self._is_finished(job)}
        for job in reversed(jobs):  # children before their parents
            parent = self.parent(job)
            if job in missing and parent is not None and not self._has_weights(parent):
                missing.add(parent)
        return [job for job in jobs if job in missing]

    def training_job(self, job: Job) -> TrainingJob:
        """Return what a worker needs, with the parent's folder in the changes."""
        parent, experiment = self.parent(job), self.experiment
        changes = self._changes(job, "" if parent is None else str(experiment.folder(parent)))
        return TrainingJob(
            self.recipe(job), changes, experiment.data, experiment.folder(job), experiment.device
        )

    def recipe(self, job: Job) -> str:
        """Return the recipe of a run."""
        return self.runs[job[0]].recipe or self.experiment.recipe

    def provenance(self, job: Job) -> dict[str, str]:
        """Return what determines a run: settings, code, data, and the same of its parent."""
        from polyglance.config import dump
        from polyglance.recipes import open_recipe
        from polyglance.utils.fingerprint import fingerprint

        if job not in self._provenance:
            parent = self.parent(job)
            # The parent's name instead of its folder: the same runs elsewhere are the same.
            changes = self._changes(job, "" if parent is None else parent[0])
            self._provenance[job] = {
                "recipe": dump((recipe := open_recipe(self.recipe(job), changes)).settings),
                "parent": "" if parent is None else fingerprint(self.provenance(parent)),
                **self.experiment.inputs,
            }
            if self.experiment.fingerprint_inputs is not None:
                self._provenance[job] |= self.experiment.fingerprint_inputs(recipe)
        return self._provenance[job]

    def report(self, job: Job) -> Report:
        """Read the report of a finished run."""
        text = (self.experiment.folder(job) / "report.json").read_text(encoding="utf-8")
        report: Report = json.loads(text)
        return report

    def delete_unneeded_weights(self, job: Job) -> None:
        """Delete all weights where no run starts from them, else the optimiser's state only."""
        has_children = any(run.parent == job[0] for run in self.runs.values())
        keep = has_children or self.experiment.keep_weights
        for path in self.experiment.folder(job).rglob("*.safetensors"):
            if not keep or path.stem == "optimiser":
                path.unlink()
                _drop_checksum(path)

    def _changes(self, job: Job, parent: str) -> tuple[str, ...]:
        own = (change.replace(PARENT, parent) for change in self.runs[job[0]].changes)
        return (*self.experiment.changes, *own, f"loop.seed={job[1]}")

    def _is_finished(self, job: Job) -> bool:
        folder = self.experiment.folder(job)
        has_outputs = all((folder / name).is_file() for name in self.experiment.outputs)
        return has_outputs and has_provenance(folder, self.provenance(job))

    def _has_weights(self, job: Job) -> bool:
        return any(self.experiment.folder(job).rglob("model.safetensors"))


def _prepare_folder(state: _PlanState, job: Job) -> None:
    """Empty the folder of a run, unless it is an interrupted run of the same provenance."""
    folder, provenance = state.experiment.folder(job), state.provenance(job)
    if (folder / "report.json").exists() or not has_provenance(folder, provenance):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_provenance(folder, provenance)


def _run_in_workers(
    state: _PlanState, todo: Sequence[Job], max_workers: int, finish: Callable[[Job], None]
) -> None:
    """Train in new processes, each run as soon as a worker is free and its parent is done."""
    waiting, failure = list(todo), None
    with SpawnPool(min(max_workers, len(todo))) as pool:
        running: dict[Future[None], Job] = {}
        while running or (waiting and not failure):
            not_done = {*waiting, *running.values()}
            for job in [job for job in waiting if state.parent(job) not in not_done]:
                if failure or len(running) == max_workers:
                    break
                waiting.remove(job)
                _prepare_folder(state, job)
                running[pool.submit(state.experiment.train, state.training_job(job))] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                if error := future.exception():
                    error.add_note(f"in the run {job[0]!r}, seed {job[1]}")
                    failure = failure or error
                else:
                    state.delete_unneeded_weights(job)
                    finish(job)
    if failure:
        raise failure


def write_provenance(folder: Path, provenance: Mapping[str, str]) -> None:
    """Write what determines a run, and the environment that trains it, into its folder."""
    contents = {**environment(), **provenance}
    (folder / "provenance.json").write_text(json.dumps(contents, indent=1), encoding="utf-8")


def has_provenance(folder: Path, provenance: Mapping[str, str]) -> bool:
    """Whether a run was trained from just this; another commit of the same code is the same."""
    path = folder / "provenance.json"
    if not path.is_file():
        return False
    written = json.loads(path.read_text(encoding="utf-8"))
    return all(written.get(name) == value for name, value in provenance.items())


def training_environment(folder: Path) -> dict[str, str]:
    """Return the date, commit and machine that trained a run, which may not be those of now."""
    written = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    return {name: written[name] for name in environment() if name in written}


def count_commits(experiment: Experiment, jobs: Iterable[Job]) -> dict[str, int]:
    """Return how many runs each commit trained."""
    commits = (training_environment(experiment.folder(job))["commit"] for job in jobs)
    return dict(sorted(Counter(commits).items()))


def training_module(system: str) -> str:
    """Return the module in `polyglance.recipes` that trains a system."""
    from polyglance.recipes import SYSTEMS

    return SYSTEMS[system][1].rpartition(".")[0]


def model_files(name: str | None) -> list[Path]:
    """Return the folder of a model by name or path, for fingerprints; empty for None."""
    from polyglance.encoders.model_folder import find_model

    return [] if name is None else [find_model(name)]


@cache
def source_files(module: str) -> list[Path]:
    """Return the files of our package that a module imports, directly or indirectly.

    Code that a recipe never reaches may change without training its runs again. The package's own
    ``__init__``, which offers everything to others, is not followed.
    """
    package = Path(__file__).parent.parent
    sources: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        base = package.parent.joinpath(*name.split("."))
        files = [p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()]
        if name in sources or not name.startswith(f"{package.name}.") or not files:
            continue
        sources[name] = files[0]
        waiting += _imported_names(files[0])
    return sorted(sources.values())


@cache
def fingerprint_code(module: str) -> str:
    """Return a fingerprint of a module and of all that it imports of our package."""
    from polyglance.utils.fingerprint import fingerprint

    return fingerprint(*source_files(module))


@cache  # systems share most of their files
def _imported_names(source: Path) -> list[str]:
    """Return what a file imports: modules, and what may be a module of a package."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    return names


def _drop_checksum(deleted: Path) -> None:
    """Take a deleted file off its checkpoint's list of checksums, which else counts as damaged."""
    for sums in deleted.parent.glob("*SUMS*"):
        lines = sums.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.rstrip("\n").endswith(f"  {deleted.name}")]
        sums.write_text("".join(kept), encoding="utf-8")
