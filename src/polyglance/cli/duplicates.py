"""``polyglance library duplicates``: list copies, near-duplicates and bursts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.addresses import LibraryOption
from polyglance.cli.hits import display_path, print_paths
from polyglance.cli.output import pluralize
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.search.duplicates import Stack


def library_duplicates(
    library: LibraryOption = None,
    kind: Annotated[str | None, typer.Option(help="Only copies, near-duplicates or burst.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the stacks as JSON.")] = False,
    paths: Annotated[
        bool,
        typer.Option("--paths", help="Print the paths of all but the first of each stack."),
    ] = False,
    null: Annotated[
        bool, typer.Option("-0", "--null", help="As --paths, each ended by a null byte.")
    ] = False,
) -> None:
    """List copies, near-duplicates and bursts, the oldest of each first. Nothing is deleted."""
    from polyglance.search.duplicates import KINDS
    from polyglance.search.library import Library

    if kind is not None and kind not in KINDS:
        raise PolyglanceError(f"--kind is {', '.join(KINDS)}, not {kind!r}")
    with Library(library) as opened:
        stacks = [stack for stack in opened.duplicates() if kind in (None, stack.kind)]
    if as_json:
        print(json.dumps([stack.to_json() for stack in stacks], ensure_ascii=False, indent=2))
    elif paths or null:
        others = [Path(member.path) for stack in stacks for member in stack.members[1:]]
        print_paths(others, "\0" if null else "\n")
    else:
        _print_stacks(stacks)


def _print_stacks(stacks: list[Stack]) -> None:
    for stack in stacks:
        print(stack.kind)
        for member in stack.members:
            print(f"  {member.taken:%Y-%m-%d %H:%M:%S}  {display_path(member.path)}")
    count = sum(len(stack.members) - 1 for stack in stacks)
    found = (
        f"{pluralize(len(stacks), 'stack')}, {pluralize(count, 'file')} beside the first of each"
    )
    print(found if stacks else "no duplicates", file=sys.stderr)
