"""The measured figures of a target beside the published ones, and verdicts on its claims."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyglance.evaluation.statistics import Comparison, compare_queries, compare_seeds, holm
from polyglance.reproduce.queries import query_scores
from polyglance.reproduce.runs import Job, Report
from polyglance.reproduce.target import Claim, Column, Row, Target

BySeed = dict[int, float]


@dataclass(frozen=True, eq=False)
class Measured:
    """What the runs of a target reported."""

    target: Target
    reports: Mapping[Job, Report]
    folders: Mapping[Job, Path]
    """Of the runs, for the ranks of their queries."""

    @cached_property
    def cells(self) -> dict[tuple[str, str], BySeed]:
        """Return the figures of each row and column, by seed, as far as they were measured."""
        found: dict[tuple[str, str], BySeed] = {}
        for row in self.target.rows:
            for column in self.target.columns:
                found[row.name, column.name] = self._measure(row, column)
            for column in self.target.columns:
                if column.mean_of:
                    parts = [found[row.name, inner] for inner in column.mean_of]
                    found[row.name, column.name] = mean_by_seed(parts)
        return found

    @property
    def places(self) -> set[str]:
        """Return the places in reports of all figures."""
        target = self.target
        return {
            report_path(target, row, column)
            for row in target.rows
            for column in target.columns
            if row.run_of(column) and not column.mean_of
        }

    def cell(self, row: str, column: str) -> BySeed:
        """Return the figures of a cell by seed; empty where it was not measured."""
        return self.cells[row, column]

    @cached_property
    def comparisons(self) -> list[tuple[Claim, Comparison]]:
        """Return the claims of which both rows were measured, each with its comparison."""
        compared = ((claim, self.compare(claim)) for claim in self.target.claims)
        return [(claim, comparison) for claim, comparison in compared if comparison is not None]

    @property
    def corrected(self) -> list[Comparison]:
        """Return `comparisons` with p-values corrected for their number, by Holm's method."""
        return holm([comparison for _, comparison in self.comparisons])

    def compare(self, claim: Claim) -> Comparison | None:
        """Compare two rows in the mean of some columns; None where one was not measured."""
        columns = [self._column(name) for name in claim.columns] or [
            column for column in self.target.columns if not column.mean_of
        ]
        columns = [
            column
            for column in columns
            if self.cell(claim.better, column.name) and self.cell(claim.worse, column.name)
        ]
        if not columns:
            return None
        above, below = (
            mean_by_seed([self.cell(row, column.name) for column in columns])
            for row in (claim.better, claim.worse)
        )
        seeds = [seed for seed in above if seed in below]
        if not seeds:
            return None
        both = [
            [self._query_scores(self.target.row(row), columns, seed) for seed in seeds]
            for row in (claim.better, claim.worse)
        ]
        scores = [[one for one in of_row if one is not None] for of_row in both]
        shapes = {one.shape for of_row in scores for one in of_row}
        if all(len(of_row) == len(seeds) for of_row in scores) and len(shapes) == 1:
            return compare_queries(np.stack(scores[0]), np.stack(scores[1]))
        return compare_seeds([above[s] for s in seeds], [below[s] for s in seeds])

    def published_gain(self, claim: Claim) -> float | None:
        """Return the same difference among the published figures."""
        target = self.target
        better, worse = (
            published(target, target.row(name)) for name in (claim.better, claim.worse)
        )
        names = claim.columns or [c.name for c in target.columns if not c.mean_of]
        gains = [
            above - below
            for name in names
            if (above := better.get(name)) is not None and (below := worse.get(name)) is not None
        ]
        return statistics.mean(gains) if gains else None

    def _column(self, name: str) -> Column:
        return next(column for column in self.target.columns if column.name == name)

    def _measure(self, row: Row, column: Column) -> BySeed:
        run = row.run_of(column)
        if column.mean_of or run is None:
            return {}
        path = report_path(self.target, row, column)
        values = {
            seed: value_at(report, path)
            for (name, seed), report in self.reports.items()
            if name == run
        }
        return {seed: column.scale * v for seed, v in values.items() if v is not None}

    def _query_scores(
        self, row: Row, columns: Sequence[Column], seed: int
    ) -> npt.NDArray[np.float64] | None:
        """Return each image's share of the mean over columns; None where ranks are missing.

        Columns of one group share their images. Those of other groups are appended, weighted so
        that the mean over all images is the mean over columns.
        """
        groups: dict[str, list[npt.NDArray[np.float64]]] = {}
        for column in columns:
            folder = self.folders.get((row.run_of(column) or "", seed))
            scores = (
                None
                if folder is None
                else query_scores(folder, report_path(self.target, row, column))
            )
            if scores is None:
                return None
            groups.setdefault(column.group, []).append(scores)
        total = sum(len(of_group[0]) for of_group in groups.values())
        parts = []
        for of_group in groups.values():
            if len({len(scores) for scores in of_group}) > 1:
                return None
            share = total / len(of_group[0]) / len(columns)
            parts.append(share * np.sum(of_group, axis=0))
        return np.concatenate(parts)


def published(target: Target, row: Row) -> dict[str, float]:
    """Return a row's published figures by column."""
    return {
        column.name: figure
        for column, figure in zip(target.columns, row.published, strict=False)
        if figure is not None
    }


def report_path(target: Target, row: Row, column: Column) -> str:
    """Return a cell's place in the report of its run."""
    return column.report.replace("{protocol}", row.protocol or target.protocol)


def value_at(report: Report, path: str) -> float | None:
    """Return the number at a dotted place in a report, if there is one.

    Where a report has the figure of a language itself in place of its metrics, as older ones of
    SMALR's CLC, ``en.mR`` is found at ``en``.
    """
    value: Any = report
    *above, last = path.split(".")
    for key in above:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):
        value = value.get(last)
    elif last != "mR":
        value = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def mean_by_seed(parts: Sequence[BySeed]) -> BySeed:
    """Return the mean of several figures for the seeds that all have; empty if one has none."""
    if not parts:
        return {}
    common = [seed for seed in parts[0] if all(seed in part for part in parts)]
    return {seed: statistics.mean(part[seed] for part in parts) for seed in common}
