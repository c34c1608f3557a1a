"""``polyglance encode``: many pictures and clips by many workers, into shards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import Quiet


def encode(
    out: Annotated[Path, typer.Option(help="Folder of the shards; run again to go on.")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders, files or manifests; without any, those that --out was begun with."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model's name or folder.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: as many as there is room for.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Cores of each worker.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="A Ray cluster: its address, or auto; default: this machine alone."),
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails", help="Keep small pictures as well.")
    ] = False,
    shard_size: Annotated[int, typer.Option(min=1, help="Files of a shard.")] = 1024,
    quiet: Quiet = False,
) -> None:
    """Encode many pictures and clips, over many machines; `library import` takes them in."""
    from polyglance.search.bulk.encoding import encode as encode_in_bulk

    report = encode_in_bulk(
        *(sources or ()),
        out=out,
        model=model,
        thumbnails=thumbnails,
        shard_size=shard_size,
        workers=workers,
        threads=threads,
        ray=ray,
        quiet=quiet,
    )
    for told in report.told:
        print(f"skipped {told}", file=sys.stderr)
    if report.bad > len(report.told):
        print(f"skipped {report.bad - len(report.told):,} more", file=sys.stderr)
    print(f"{out}: {report}")
    if report.bad and not report.files and not report.before:
        raise typer.Exit(1)
