"""``polyglance index``: pictures and clips into a library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.output import Quiet
from polyglance.errors import printable

if TYPE_CHECKING:
    from polyglance.search.indexing import Report

LibraryOption = Annotated[
    str | None,
    typer.Option(
        "--library",
        "-l",
        metavar="PLACE",
        help="A file or postgresql://...; else $POLYGLANCE_LIBRARY, or a file of your own.",
    ),
]
TOLD = 10
"""Bad files that are named; the others are only counted."""


def index(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders or files to add; without any, look at those known again."),
    ] = None,
    library: LibraryOption = None,
    model: Annotated[
        str | None, typer.Option(help="A model's name or folder, for a new library.")
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails", help="Keep small pictures in the library.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    quiet: Quiet = False,
) -> None:
    """Add pictures and clips to a library; run again for what is new, changed, moved or gone."""
    from polyglance.search.library import Library

    with Library(library, model=model, threads=threads) as opened:
        report = (
            opened.add(*folders, thumbnails=thumbnails, quiet=quiet)
            if folders
            else opened.update(thumbnails=thumbnails, quiet=quiet)
        )
        tell_report(report)
        print(f"{opened.name}: {report}; {len(opened):,} in all")
        if report.bad and not len(opened):
            raise typer.Exit(1)


def tell_report(report: Report) -> None:
    """Name the bad files, the first of them."""
    for bad in report.bad[:TOLD]:
        print(f"skipped {printable(bad.path)}: {bad.reason}", file=sys.stderr)
    if len(report.bad) > TOLD:
        print(f"skipped {len(report.bad) - TOLD:,} more", file=sys.stderr)
