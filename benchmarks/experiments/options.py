"""Command-line options that experiments share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results_io import RESULTS, set_commit


def experiment_parser(
    description: str | None,
    *,
    data: str,
    runs: str,
    document: Path,
    recipe: str | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    data_required: bool = True,
) -> argparse.ArgumentParser:
    """Build a parser with the options of any experiment that trains a recipe.

    Args:
        description: What the experiment is; only the first line is shown.
        data: What lies in the folder of ``--data``.
        runs: The default folder of runs.
        document: The docs page to fill.
        recipe: The default recipe; without one there is no ``--recipe``.
        seeds: The default seeds.
        data_required: Whether ``--data`` must be given.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=data_required, help=f"the folder of {data}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    if recipe is not None:
        parser.add_argument("--recipe", default=recipe)
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="KEY=VALUE",
        help="change the recipe in all runs",
    )  # fmt: skip
    parser.add_argument("--runs", type=Path, default=Path(runs), help="the folder of all runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=document, help="the docs page to fill")
    parser.add_argument("--commit", help="the commit to name in results, without git")
    return parser


def add_cache_option(parser: argparse.ArgumentParser) -> None:
    """Add the folder of what runs share."""
    parser.add_argument(
        "--cache", type=Path, default=Path("runs/cache"), help="the folder of what runs share"
    )


def set_environment(options: argparse.Namespace, threads: int) -> None:
    """Set the commit of results and the threads per process, before workers import libraries."""
    set_commit(options.commit)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
