"""``polyglance reproduce``: the tables and figures of the papers, and our own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.output import parse_integers
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.reproduce.run import Options, Reproduced


def reproduce(
    target: Annotated[
        str | None, typer.Argument(help="A target such as uc2/table1; --list names them.")
    ] = None,
    list_targets: Annotated[
        bool, typer.Option("--list", help="List all targets, and those that are not measured.")
    ] = False,
    data_needed: Annotated[
        bool, typer.Option("--data-needed", help="Print what data it needs and how to lay it out.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of the datasets.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of runs and results; run again to resume.")
    ] = Path("reproduced"),
    toy: Annotated[
        bool, typer.Option("--toy", help="Run the whole chain on toy data, in minutes.")
    ] = False,
    all_targets: Annotated[
        bool, typer.Option("--all", help="With --toy: run every target, and write a summary.")
    ] = False,
    row: Annotated[
        list[str] | None, typer.Option(help="Only this row, by its name; repeatable.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; default: 0,1,2, with --toy 0.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time.")] = 1,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting in all runs; repeatable."),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            help="Merge what was measured in another --out, such as other seeds, without training;"
            " repeatable."
        ),
    ] = None,
    keep_weights: Annotated[
        bool, typer.Option("--keep-weights", help="Keep the weights of all runs.")
    ] = False,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
) -> None:
    """Reproduce a table or figure: train its rows, write JSON, CSV, Markdown and a plot."""
    if list_targets:
        _print_targets()
        return
    if all_targets:
        if not toy or target is not None or row or data is not None or overrides:
            raise PolyglanceError("--all runs every target on toy data: give --toy --all alone")
        _run_all(out, device=device, jobs=jobs)
        return
    if target is None:
        raise PolyglanceError("name a target such as uc2/table1; --list names all of them")
    from polyglance.reproduce.run import Options
    from polyglance.reproduce.run import data_needed as lines_of
    from polyglance.reproduce.target import find_target

    _, found = find_target(target)
    if data_needed:
        for line in lines_of(target):
            print(line)
        return
    if merge:
        if toy or data is not None or overrides or row or seeds or keep_weights or jobs != 1:
            raise PolyglanceError(
                "--merge takes what was measured as it is: give a target, --merge and --out alone"
            )
        from polyglance.reproduce.merge import merge as merge_reproductions

        _print_files(merge_reproductions(target, merge, out))
        return
    if toy and (data is not None or overrides):
        raise PolyglanceError("--toy brings its own data and settings: leave --data and --set out")
    options = Options(
        out=out, data=data, device=device, jobs=jobs, changes=tuple(overrides or ()),
        seeds=tuple(parse_integers(seeds or ("0" if toy else "0,1,2"), "--seeds")),
        rows=tuple(row or ()), keep_weights=keep_weights,
    )  # fmt: skip
    if not found.measured:
        print(f"{target} is not measured: {found.instead or 'published figures only'}")
    _print_result(_run(target, options, toy=toy))


def _run(target: str, options: Options, *, toy: bool) -> Reproduced:
    """Reproduce a target; on toy data, exit with status 1 if nothing was learned."""
    from polyglance.reproduce.run import reproduce as run
    from polyglance.reproduce.toy import reproduce_toy

    if not toy:
        return run(target, options, progress=_progress)
    result, learned = reproduce_toy(target, options, progress=_progress)
    if learned is not None:
        print(f"learned: {learned}")
        if not learned.reached:
            _print_result(result)
            raise typer.Exit(1)
    return result


def _run_all(out: Path, *, device: str, jobs: int) -> None:
    """Run every target on toy data; exit with status 1 if one learned nothing."""
    from polyglance.reproduce.run import Options
    from polyglance.reproduce.toy_all import reproduce_all_toy

    options = Options(out=out, device=device, jobs=jobs, seeds=(0,))
    outcomes = reproduce_all_toy(options, progress=_progress)
    print((out / "toy-targets.md").read_text(encoding="utf-8"))
    if not all(outcome.learned.reached for outcome in outcomes):
        raise typer.Exit(1)


def _print_result(result: Reproduced) -> None:
    _print_files(result.files)


def _print_files(files: list[Path]) -> None:
    for path in files:
        if path.suffix == ".md":
            print(path.read_text(encoding="utf-8"))
    for path in files:
        print(path)


def _print_targets() -> None:
    from polyglance.reproduce.target import find_target, target_names
    from polyglance.reproduce.write import describe

    for name in target_names():
        print(f"{name:20} {describe(find_target(name)[1])}")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
