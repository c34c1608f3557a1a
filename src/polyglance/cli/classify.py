"""``polyglance classify``: sort pictures and clips by labels in any language."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.addresses import LibraryOption
from polyglance.cli.completion import complete_language, complete_model
from polyglance.cli.hits import path_text
from polyglance.cli.index import print_skipped_files
from polyglance.cli.interrupts import kept_if_interrupted
from polyglance.cli.output import Quiet, console, pluralize
from polyglance.errors import PolyglanceError, printable

if TYPE_CHECKING:
    from polyglance.search.classification import Classification
    from polyglance.search.library import Library

NONE = "none of these"


def classify(
    folder: Annotated[Path, typer.Argument(help="A folder, indexed or not, or one file.")],
    labels: Annotated[str, typer.Argument(help="Labels in any language: cat,dog,car.")],
    library: LibraryOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model,
            help="Model name or folder, for a folder that is not indexed.",
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(help="How labels are read, such as 'a drawing of {}'; repeatable."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_language,
            help="Language of the labels, for models that need it.",
        ),
    ] = None,
    min_probability: Annotated[
        float, typer.Option(min=0, max=1, help="Below it, none of these.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV with the probability of each label.")
    ] = False,
    copy_to: Annotated[
        Path | None, typer.Option(help="Copy the files into folders named by labels, in here.")
    ] = None,
    link_to: Annotated[
        Path | None, typer.Option(help="The same with links instead of copies.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Sort pictures and clips by labels in any language; the files stay as they are."""
    from polyglance.search.classification import split_labels
    from polyglance.search.sorted_folders import sort_into_folders

    names = split_labels(labels)
    if not names:
        raise PolyglanceError("give at least one label, such as cat,dog")
    if as_json and as_csv:
        raise PolyglanceError("--json and --csv exclude each other: give one of them")
    if copy_to and link_to:
        raise PolyglanceError("--copy-to and --link-to exclude each other: give one of them")
    target = copy_to or link_to
    if target:
        _check_target(target, folder)
    with _opened(folder, library, model, quiet=quiet) as opened:
        results = opened.classify(
            names,
            folder=folder,
            templates=template or None,
            language=language,
            min_probability=min_probability,
        )
    if not results:
        raise PolyglanceError(f"{printable(str(folder))}: no picture or clip there can be read")
    if as_json:
        print(json.dumps([one.to_json() for one in results], ensure_ascii=False, indent=2))
    elif as_csv:
        _print_csv(results, names)
    else:
        _print_lines(results, names)
    counts = Counter(one.label or NONE for one in results)
    summary = ", ".join(f"{counts[name]:,} {name}" for name in (*names, NONE) if counts[name])
    print(f"{pluralize(len(results), 'file')}: {summary}", file=sys.stderr)
    if target:
        name = printable(str(target))
        with kept_if_interrupted(lambda: f"what is in {name} stays; the same command continues"):
            put, there = sort_into_folders(
                results, target.expanduser().resolve(), link=bool(link_to)
            )
        verb = "linked" if link_to else "copied"
        before = f", {there:,} were there already" if there else ""
        print(f"{name}: {put:,} {verb}{before}", file=sys.stderr)


def _check_target(target: Path, folder: Path) -> None:
    if target.expanduser().resolve().is_relative_to(folder.expanduser().resolve()):
        raise PolyglanceError(
            f"{printable(str(target))} lies in {printable(str(folder))}, where the next run would"
            " find its files again: give a folder elsewhere"
        )


@contextmanager
def _opened(
    folder: Path, place: str | None, model: str | None, *, quiet: bool
) -> Iterator[Library]:
    """Open the library that has the folder, or else one of its own that is deleted at the end."""
    import tempfile

    from polyglance.search.library import Library
    from polyglance.search.store import LibraryNotFoundError

    if not folder.expanduser().exists():
        raise PolyglanceError(f"{printable(str(folder))}: no such file or folder")
    if model is None:
        with Library(place) as opened:
            try:
                if opened.has_files_in(folder):
                    yield opened
                    return
            except LibraryNotFoundError:
                if place is not None:
                    raise
        if place is not None:
            raise PolyglanceError(
                f"{printable(str(folder))}: nothing of this is in {place}; `polyglance index` adds"
                " it, and without --library it is encoded for this once"
            )
    elif place is not None:
        raise PolyglanceError("--model is for a folder that is not indexed: leave out --library")
    with (
        tempfile.TemporaryDirectory(prefix="polyglance-") as temporary,
        Library(Path(temporary) / "classify.polyglance", model=model) as opened,
    ):
        report = opened.add(folder, quiet=quiet)
        print_skipped_files(report, None, kept=False)
        yield opened


def _print_lines(results: Sequence[Classification], labels: Sequence[str]) -> None:
    """Print a line for each file, by label, the most probable first; the path is last."""
    from rich.text import Text

    order = {name: place for place, name in enumerate((*labels, None))}
    ranked = sorted(results, key=lambda one: (order[one.label], -one.probability, one.item.path))
    terminal = console()
    for one in ranked:
        line = Text(f"{one.probability:4.0%}  {one.label or NONE}  ")
        terminal.print(line + path_text(one.item.path, terminal), soft_wrap=True)


def _print_csv(results: Sequence[Classification], labels: Sequence[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["path", "label", "probability", *labels])
    for one in results:
        shares = [f"{one.probabilities[name]:.4f}" for name in labels]
        writer.writerow([one.item.path, one.label or "", f"{one.probability:.4f}", *shares])
