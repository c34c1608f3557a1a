"""Reproduce a target: check its data, train its runs, write its files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes import Recipe, find_recipe, open_recipe
from polyglance.recipes.run_folder import QUERIES
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce.environment import environment
from polyglance.reproduce.needs import missing_needs, named_files, note_missing_packages
from polyglance.reproduce.queries import write_queries
from polyglance.reproduce.results import Measured
from polyglance.reproduce.runs import PARENT, SAVE, Experiment, Job, Report, Run
from polyglance.reproduce.target import Paper, Target, data_needs, find_target
from polyglance.reproduce.write import write_files

_LARGE = 64_000_000
"""Bytes above which a file counts by its size and beginning, not by all of its content."""
_PREPARED = re.compile(r"OUT/cache/[\w.+-]+")
"""What was prepared, whose names have fingerprints of data."""


@dataclass(frozen=True)
class Options:
    """How a target is reproduced."""

    out: Path
    """Results go to OUT/TARGET, runs to OUT/runs, shared preparation to OUT/cache."""
    data: Path | None = None
    device: str = "cpu"
    jobs: int = 1
    seeds: tuple[int, ...] = (0, 1, 2)
    changes: tuple[str, ...] = ()
    prepared: tuple[str, ...] = ()
    """Changes that name what was prepared for all runs."""
    rows: tuple[str, ...] = ()
    """Only these rows; none for all."""
    keep_weights: bool = False

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise PolyglanceError(f"jobs is {self.jobs}: give 1 or more")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise PolyglanceError("seeds must be different whole numbers, such as 0,1,2")


@dataclass(frozen=True, eq=False)
class Reproduced:
    """The outcome of a target."""

    measured: Measured
    files: list[Path]


Progress = Callable[[str], None]


def reproduce(name: str, options: Options, progress: Progress = print) -> Reproduced:
    """Train the runs of a target and write its table, resuming what was interrupted.

    Args:
        name: of the target, such as ``uc2/table1``.
        options: where from, where to, on what.
        progress: called with a line after each run.

    Returns:
        The figures and the files that were written.
    """
    paper, target = find_target(name)
    if not target.measured:
        return write_published(target, options.out)
    if options.data is None:
        raise PolyglanceError(
            f"{name} needs its data: give --data FOLDER; 'polyglance reproduce {name}"
            " --data-needed' says how to lay it out, --toy runs without any"
        )
    target = note_missing_packages(select_rows(target, options.rows))
    data = options.data.resolve()
    plan = [with_data(run, data) for run in paper.plan()]
    made: tuple[str, ...] = ()
    if target.prepare:
        from polyglance.reproduce.prepare import prepare, with_dictionaries

        made, pattern = prepare(paper, target, options)
        plan = [with_dictionaries(run, pattern) for run in plan]
    options = replace(options, prepared=(SAVE, *target.changes, *made))
    check_data(paper, target, plan, data, (*options.prepared, *options.changes))
    return train_and_write(paper, target, plan, data, options, progress)


def train_and_write(
    paper: Paper,
    target: Target,
    plan: list[Run],
    data: Path,
    options: Options,
    progress: Progress,
    details: Mapping[str, Any] | None = None,
) -> Reproduced:
    """Train what the cells of a target need, and write its files after every run.

    Args:
        paper: the file of the target.
        target: what to reproduce.
        plan: all runs of the paper.
        data: the data folder.
        options: seeds, device and folders.
        progress: called with a line after each run.
        details: what else ``table.json`` shall say.

    Returns:
        The figures and files.
    """
    group = target.name.partition("/")[0]
    experiment = Experiment(
        "", data, options.out / "runs" / group, options.device,
        (*options.prepared, *options.changes),
        fingerprint_inputs=lambda recipe: input_fingerprints(recipe, data),
        keep_weights=options.keep_weights or target.keep_weights,
        outputs=("report.json", *(["answers.jsonl"] if target.summary == "vqa" else [])),
    )  # fmt: skip
    names = {run.name for run in plan}
    wanted = [(run, seed) for seed in options.seeds for run in target.runs() if run in names]
    more = dict(details or {})
    settings = settings_fingerprints(
        needed_runs(target, plan), experiment.changes, data, options.out
    )
    started = time.monotonic()

    def write(reports: Mapping[Job, Report]) -> Reproduced:
        measured = Measured(target, reports, {job: experiment.folder(job) for job in reports})
        about = {
            **environment(), "seeds": list(options.seeds), "device": options.device,
            "runs_at_once": options.jobs,
            "changes": symbolic(experiment.changes, data, options.out), "settings": settings,
            **more,
        }  # fmt: skip
        files = write_files(measured, options.out / target.name, about)
        if ranks := write_queries(
            measured.folders, measured.places, options.out / target.name / QUERIES
        ):
            files.append(ranks)
        if target.summary is not None and "toy" not in more:
            from polyglance.reproduce.summaries import write_summary

            seconds = time.monotonic() - started
            files.append(write_summary(paper, measured, experiment, options, seconds))
        return Reproduced(measured, files)

    finished: list[Job] = []

    def on_finished(job: Job, reports: Mapping[Job, Report]) -> None:
        finished.append(job)
        progress(f"{job[0]}, seed {job[1]}: done ({len(finished)} now, {len(reports)} in all)")
        write(reports)

    with _ThreadShare(options.jobs):
        reports = staged_runs.run_all(
            plan, wanted, experiment, max_workers=options.jobs, on_finished=on_finished
        )
    return write(reports)


def settings_fingerprints(
    runs: list[Run], changes: tuple[str, ...], data: Path, out: Path
) -> dict[str, str]:
    """Fingerprint the settings of runs, wherever their data lie and whatever was prepared."""
    from polyglance.config import dump
    from polyglance.utils.fingerprint import fingerprint

    found = {}
    for run in runs:
        assert run.recipe is not None
        own = [change.replace(PARENT, run.parent or "") for change in run.changes]
        settings = dump(open_recipe(run.recipe, (*changes, *own)).settings)
        (text,) = symbolic((settings,), data, out)
        found[run.name] = fingerprint(_PREPARED.sub("OUT/cache", text))
    return found


def write_published(target: Target, out: Path) -> Reproduced:
    """Write a target without runs: what was published, and what to see instead."""
    measured = Measured(target, {}, {})
    if not target.rows:
        return Reproduced(measured, [])
    return Reproduced(measured, write_files(measured, out / target.name, environment()))


def select_rows(target: Target, names: tuple[str, ...]) -> Target:
    """Return the target with some of its rows only, and claims about these."""
    if not names:
        return target
    known = [row.name for row in target.rows]
    if unknown := [name for name in names if name not in known]:
        raise PolyglanceError(
            f"{target.name} has no row {unknown[0]!r}: its rows are {', '.join(known)}"
        )
    claims = tuple(c for c in target.claims if c.better in names and c.worse in names)
    learning = target.learning if target.learning and target.learning.row in names else None
    rows = tuple(row for row in target.rows if row.name in names)
    return replace(target, rows=rows, claims=claims, learning=learning)


def with_data(run: Run, data: Path) -> Run:
    """Fill in the data folder."""
    return replace(run, changes=tuple(c.replace("{data}", str(data)) for c in run.changes))


def needed_runs(target: Target, plan: list[Run]) -> list[Run]:
    """Return the runs that a target needs, with those that they start from."""
    by_name = {run.name: run for run in plan}
    needed: set[str] = set()
    for name in target.runs():
        ancestor: str | None = name
        while ancestor is not None and ancestor in by_name:
            needed.add(ancestor)
            ancestor = by_name[ancestor].parent
    return [run for run in plan if run.name in needed]


def check_data(
    paper: Paper, target: Target, plan: list[Run], data: Path, changes: tuple[str, ...]
) -> None:
    """Refuse to begin if files of any run are missing, not only of the first."""
    del paper
    missing: dict[str, dict[str, None]] = {}
    for run in needed_runs(target, plan):
        assert run.recipe is not None
        own = [change.replace(PARENT, "parent") for change in run.changes]
        for name, problem in missing_needs(open_recipe(run.recipe, (*changes, *own)), data):
            missing.setdefault(problem, {})[name] = None
    if missing:
        sentences = [
            ", ".join(list(names)[:5]) + (" ..." if len(names) > 5 else "") + f": {problem}"
            for problem, names in missing.items()
        ]
        raise DataError(
            f"{target.name}: {'; '.join(sentences)}; 'polyglance reproduce {target.name}"
            " --data-needed' says how to lay the data out"
        )


def data_needed(name: str) -> Iterator[str]:
    """Yield, line by line, what data a target needs and how to lay it out."""
    paper, target = find_target(name)
    if not target.measured:
        yield f"{name} needs no data: {target.instead or 'published figures only'}"
        return
    yield f"{name} ({target.source}): {target.title}"
    for need in (data_needs()[key] for key in target.data):
        yield f"\n{need.title}: DATA/{need.folder}"
        if need.get:
            yield f"  {need.get}"
        yield from (f"  {line}" for line in need.layout.splitlines())
    recipes = dict.fromkeys(run.recipe for run in needed_runs(target, paper.plan()) if run.recipe)
    for recipe in recipes:
        path = find_recipe(recipe)
        yield f"\nrecipe {recipe}:"
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            yield f"  {line.removeprefix('#').removeprefix(' ')}"


def input_fingerprints(recipe: Recipe, data: Path) -> dict[str, str]:
    """Fingerprint the code of a recipe's system and the files that its settings name."""
    from polyglance.utils.fingerprint import fingerprint

    module = f"polyglance.recipes.{staged_runs.training_module(recipe.system)}"
    model = staged_runs.model_files(getattr(recipe.settings, "init_from_dual_encoder", None))
    paths = sorted({path for path in named_files(recipe.settings, data) if path.exists()})
    return {
        "code": staged_runs.fingerprint_code(module),
        "data": fingerprint([_content(path, data) for path in paths]),
        **({"dual_encoder": fingerprint(*model)} if model else {}),
    }


def _content(path: Path, data: Path) -> list[Any]:
    """Return what identifies a file or folder: small files by content, large ones by their size."""
    from polyglance.utils.fingerprint import fingerprint

    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    found: list[Any] = []
    for file in files:
        size = file.stat().st_size
        name = str(file.relative_to(data)) if file.is_relative_to(data) else file.name
        if size <= _LARGE:
            found.append([name, fingerprint(file)])
        else:
            with file.open("rb") as content:
                found.append([name, size, content.read(1_000_000).hex()[:64]])
    return found


def symbolic(changes: tuple[str, ...], data: Path, out: Path) -> list[str]:
    """Replace this machine's folders in changes."""
    text = [change.replace(str(data), "DATA") for change in changes if change != SAVE]
    return [change.replace(str(out.resolve()), "OUT") for change in text]


class _ThreadShare:
    """Give each of several workers its share of the cores."""

    def __init__(self, jobs: int) -> None:
        self.share = str(max(1, (os.cpu_count() or 1) // jobs))
        self.before = os.environ.get("OMP_NUM_THREADS")

    def __enter__(self) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", self.share)

    def __exit__(self, *error: object) -> None:
        if self.before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
