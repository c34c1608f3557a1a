"""``polyglance index``: add pictures and clips to a library."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.addresses import LibraryOption as LibraryOption
from polyglance.cli.completion import complete_model
from polyglance.cli.interrupts import describe_library, kept_if_interrupted
from polyglance.cli.limits import MaxMemory, MaxPixels, MaxSeconds, decode_limits
from polyglance.cli.output import Quiet, pluralize
from polyglance.errors import PolyglanceError, printable

if TYPE_CHECKING:
    from polyglance.search.indexing import IndexReport

MAX_NAMED = 3
"""Bad files that are named; of more, only the reasons are."""
MAX_REASONS = 5
"""Reasons that are named."""


def index(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders or files to add; without any, re-scan the indexed ones."),
    ] = None,
    library: LibraryOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model, help="Model name or folder, for a new library."
        ),
    ] = None,
    features: Annotated[
        list[Path] | None,
        typer.Option(help="Feature store of the files, for a model of features; repeatable."),
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails", help="Store thumbnails in the library.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; default: all cores.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Encode the given FOLDERS anew, unchanged or not.")
    ] = False,
    ocr: Annotated[
        bool | None,
        typer.Option(
            "--ocr/--no-ocr",
            help="Read the text inside pictures, too, from now on or no longer;"
            " needs polyglance\\[ocr].",
        ),
    ] = None,
    max_pixels: MaxPixels = None,
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    quiet: Quiet = False,
) -> None:
    """Add pictures and clips to a library; run again to re-scan for changes."""
    from polyglance.search.library import Library

    if again and not folders:
        raise PolyglanceError("--again needs the folders or files to encode anew")
    limits = decode_limits(max_pixels, max_seconds, max_memory)
    with Library(
        library, model=model, threads=threads, features=features or (), limits=limits
    ) as opened:
        with kept_if_interrupted(lambda: describe_library(opened, again=again)):
            report = (
                opened.add(*folders, thumbnails=thumbnails, again=again, quiet=quiet)
                if folders
                else opened.update(thumbnails=thumbnails, quiet=quiet)
            )
            if ocr is not None:
                texts = opened.read_texts(ocr, quiet=quiet)
        print_skipped_files(report, library)
        print(f"{opened.name}: {report}; {len(opened):,} in all")
        if ocr:
            print(f"{pluralize(texts, 'picture')} with text")
        if model and opened.keeps_other_model:
            print(
                f"{opened.name} keeps the model that it was made with: to search it with this one,"
                f" give --model {shlex.quote(model)} there, too",
                file=sys.stderr,
            )
        if report.bad and not len(opened):
            raise typer.Exit(1)


def print_skipped_files(report: IndexReport, library: str | None, *, kept: bool = True) -> None:
    """Print the bad files: few by name, many by their reasons and where all are listed.

    Args:
        report: What was done.
        library: The library, as it was given.
        kept: Whether the library is there afterwards.
    """
    if len(report.bad) <= MAX_NAMED:
        for bad in report.bad:
            print(f"skipped {printable(bad.path)}: {bad.reason}", file=sys.stderr)
        return
    reasons = Counter(_summarize(bad.reason) for bad in report.bad).most_common()
    print(f"skipped {pluralize(len(report.bad), 'file')}:", file=sys.stderr)
    for reason, count in reasons[:MAX_REASONS]:
        print(f"{count:>7,}  {reason}", file=sys.stderr)
    if others := sum(count for _, count in reasons[MAX_REASONS:]):
        print(f"{others:>7,}  for other reasons", file=sys.stderr)
    if not kept:
        return
    option = f" -l {shlex.quote(library)}" if library else ""
    print(f"`polyglance library problems{option}` lists them", file=sys.stderr)


def _summarize(reason: str) -> str:
    """Return a reason without what differs from file to file."""
    reason = re.split(r",|:| \(", reason)[0]
    return re.sub(r"^\w+ files are", "the format is", reason)
