"""``polyglance encode``: encode many pictures and clips in parallel, into shards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.completion import complete_model
from polyglance.cli.interrupts import kept_if_interrupted
from polyglance.cli.limits import MaxMemory, MaxPixels, MaxSeconds, decode_limits
from polyglance.cli.output import Quiet


def encode(
    out: Annotated[Path, typer.Option(help="Folder of the shards; run again to resume.")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders, files or manifests; default when resuming: the same."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(autocompletion=complete_model, help="Model name or folder.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; default: as many as fit.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each worker.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster, or auto; default: this machine only."),
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails", help="Store thumbnails as well.")
    ] = False,
    shard_size: Annotated[int, typer.Option(min=1, help="Files per shard.")] = 1024,
    max_pixels: MaxPixels = None,
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    quiet: Quiet = False,
) -> None:
    """Encode many pictures and clips on many machines, for `library import`."""
    from polyglance.search.bulk.encoding import encode as encode_in_bulk

    with kept_if_interrupted(lambda: _describe_shards(out)):
        report = encode_in_bulk(
            *(sources or ()),
            out=out,
            model=model,
            thumbnails=thumbnails,
            shard_size=shard_size,
            workers=workers,
            threads=threads,
            ray=ray,
            limits=decode_limits(max_pixels, max_seconds, max_memory),
            quiet=quiet,
        )
    for message in report.messages:
        print(f"skipped {message}", file=sys.stderr)
    if report.bad > len(report.messages):
        print(f"skipped {report.bad - len(report.messages):,} more", file=sys.stderr)
    print(f"{out}: {report}")
    if report.bad and not report.files and not report.previous_shards:
        raise typer.Exit(1)


def _describe_shards(out: Path) -> str:
    """Say what an interrupted run kept."""
    from polyglance.errors import PolyglanceError
    from polyglance.search.bulk.shards import ShardFolder

    try:
        folder = ShardFolder(out)
        shards, pending = folder.plan.shards, len(folder.pending())
    except PolyglanceError:
        return "no file was encoded yet"
    return f"{shards - pending:,} of {shards:,} shards are in {out}; the same command continues"
