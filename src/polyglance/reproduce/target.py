"""A target: one table or figure, as data.

A YAML file in ``targets`` holds what one paper, or one of our own corpora, has: its runs, and the
tables and figures whose cells these runs fill. A run is a recipe with changes; a cell is a place
in a run's report, beside the published figure. Targets of one file share their runs: a
pre-training that three tables start from is trained once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

from polyglance.config import load
from polyglance.errors import PolyglanceError
from polyglance.reproduce.runs import Run

FOLDER = Path(__file__).parent / "targets"

Prepare = Literal[
    "cross_encoder_data", "dictionaries", "smalr_data", "dual_embeddings", "mmp_features"
]  # fmt: skip
Summary = Literal["uc2", "m3p", "mmp", "smalr", "smalr-masking", "reranking", "vqa"]


@dataclass(frozen=True)
class RunSpec:
    """A run as a file of targets describes it."""

    recipe: str
    changes: tuple[str, ...] = ()
    """As ``--set`` takes them; ``{parent}`` is the folder of the parent, ``{data}`` the data."""
    parent: str | None = None
    toy: str = ""
    """The toy corpus that stands for its data; see `polyglance.reproduce.toy`."""


@dataclass(frozen=True)
class Column:
    """One measured figure of a table."""

    name: str
    report: str = ""
    """Its place in a report, such as ``test.all_pairs.de.mR``; ``{protocol}`` is the row's."""
    group: str = ""
    """Columns of a group are measured by the same run of a row, on the same images."""
    mean_of: tuple[str, ...] = ()
    """Instead of a place in the report: the mean of these columns."""
    digits: int = 1
    scale: float = 1.0
    """Measured figures are multiplied by this, such as 1e-6 for millions."""


@dataclass(frozen=True)
class Row:
    """One setting: the runs that measure it, and what was published."""

    name: str
    section: str = ""
    run: str = ""
    """The run of all columns; empty where ``runs`` names some, or nothing is trained here."""
    runs: Mapping[str, str] = field(default_factory=dict)
    """The run of each column or group, where they differ."""
    protocol: str = ""
    """Fills ``{protocol}`` in the place of a column; empty for the target's."""
    published: tuple[float | None, ...] = ()
    """In the order of the columns; empty where nothing was published."""
    note: str = ""
    x: float | None = None
    """Its place on the horizontal axis of a line plot."""

    def run_of(self, column: Column) -> str | None:
        """Return the run that measures a column, if any."""
        return self.runs.get(column.name, self.runs.get(column.group, self.run)) or None


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: one row is above another."""

    text: str
    better: str
    worse: str
    columns: tuple[str, ...] = ()
    """Over their mean; empty for all columns that are not means themselves."""


@dataclass(frozen=True)
class Learning:
    """What must be learned for a target to succeed on toy data."""

    row: str
    columns: tuple[str, ...] = ()
    """Empty for all that are measured."""
    margin: float = 10.0
    """Points above chance."""


@dataclass(frozen=True)
class Target:
    """One table or figure."""

    title: str
    name: str = ""
    source: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    protocol: str = ""
    claims: tuple[Claim, ...] = ()
    data: tuple[str, ...] = ()
    """Names in ``targets/data.yaml``."""
    learning: Learning | None = None
    plot: Literal["dots", "lines", "scatter"] = "dots"
    plot_columns: tuple[str, ...] = ()
    """The columns that a plot of lines draws, a line for each section of rows; empty for all."""
    x_label: str = ""
    y_label: str = "mR, %"
    instead: str = ""
    """For what cannot be measured, such as a drawing: what to see instead, by which command."""
    prepare: tuple[Prepare, ...] = ()
    """What is made before the runs, where the data lacks it."""
    changes: tuple[str, ...] = ()
    """Changes of all runs, before those that the user asks for."""
    summary: Summary | None = None
    """The results page that this fills, beside its own files."""
    keep_weights: bool = False
    """Keep the weights of all runs, for models that are used afterwards."""

    @property
    def measured(self) -> bool:
        """Whether there are rows to run."""
        return any(row.run or row.runs for row in self.rows)

    def row(self, name: str) -> Row:
        """Return a row by its name."""
        return next(row for row in self.rows if row.name == name)

    def runs(self) -> list[str]:
        """Return the names of the runs that the cells need, in order."""
        needed: dict[str, None] = {}
        for row in self.rows:
            for column in self.columns:
                if not column.mean_of and (run := row.run_of(column)):
                    needed[run] = None
        return list(needed)


@dataclass(frozen=True)
class Paper:
    """All targets of one file."""

    source: str
    targets: Mapping[str, Target]
    runs: Mapping[str, RunSpec] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    """Changes of every run, before its own."""
    toy_changes: tuple[str, ...] = ()
    """Changes of every run on toy data, after all others."""

    def plan(self) -> list[Run]:
        """Return all runs, parents first."""
        return [
            Run(name, (*self.changes, *spec.changes), spec.parent, spec.recipe)
            for name, spec in self.runs.items()
        ]


@dataclass(frozen=True)
class DataNeed:
    """A dataset and how to lay it out below the data folder."""

    title: str
    folder: str
    """Below the data folder; it is there once this has been followed."""
    get: str = ""
    """Where it is published."""
    layout: str = ""
    """Files and the commands that make them; DATA is the data folder."""


@cache
def paper(name: str) -> Paper:
    """Read the targets of one file."""
    read: Paper = load(Paper, FOLDER / f"{name}.yaml")
    for short, target in read.targets.items():
        _check(target, f"{name}/{short}", read)
    return read


@cache
def data_needs() -> Mapping[str, DataNeed]:
    """Return all datasets that targets name."""
    needs: _DataNeeds = load(_DataNeeds, FOLDER / "data.yaml")
    return needs.datasets


@dataclass(frozen=True)
class _DataNeeds:
    datasets: Mapping[str, DataNeed]


def paper_names() -> list[str]:
    """Return the names of all files of targets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "data")


def target_names() -> Iterator[str]:
    """Yield the names of all targets, such as ``uc2/table1``."""
    for name in paper_names():
        yield from (f"{name}/{short}" for short in paper(name).targets)


def find_target(name: str) -> tuple[Paper, Target]:
    """Return a target by its name, with the file that it is in."""
    group, _, short = name.partition("/")
    if group in paper_names() and short in paper(group).targets:
        found = paper(group)
        target = found.targets[short]
        return found, replace(target, name=name, source=target.source or found.source)
    near = get_close_matches(name, list(target_names()), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "'polyglance reproduce --list' names them"
    raise PolyglanceError(f"there is no target {name!r}: {hint}")


def _check(target: Target, name: str, of: Paper) -> None:
    """Refuse a target whose parts do not fit together."""
    columns = [column.name for column in target.columns]
    rows = [row.name for row in target.rows]
    named = [*(claim.better for claim in target.claims), *(c.worse for c in target.claims)]
    named += [target.learning.row] if target.learning else []
    problems = [
        *(f"{row.name!r} has {len(row.published)} published figures for {len(columns)} columns"
          for row in target.rows if row.published and len(row.published) != len(columns)),
        *(f"no run is called {run!r}" for run in target.runs() if run not in of.runs),
        *(f"no row is called {row!r}" for row in named if row not in rows),
        *(f"no column is called {column!r}" for claim in target.claims for column in claim.columns
          if column not in columns),
        *(f"no column is called {inner!r}" for column in target.columns for inner in column.mean_of
          if inner not in columns),
        *(f"no column is called {column!r}" for column in target.plot_columns
          if column not in columns),
        *(f"no dataset is called {need!r}" for need in target.data if need not in data_needs()),
    ]  # fmt: skip
    if target.plot_columns and target.plot != "lines":
        problems.append("plot_columns are for a plot of lines")
    if len(set(rows)) != len(rows):
        problems.append("two rows have the same name")
    if not target.measured and not target.instead and not any(row.published for row in target.rows):
        problems.append("it has neither runs nor an explanation")
    if problems:
        raise PolyglanceError(f"{name}: {problems[0]}")
