"""``polyglance library``: inspect and maintain libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.addresses import LibraryOption, refuse_passwords
from polyglance.cli.index import print_skipped_files
from polyglance.cli.output import Quiet, pluralize
from polyglance.errors import printable

app = typer.Typer(no_args_is_help=True, help="Libraries of pictures and clips.")


@app.command("info")
def library_info(library: LibraryOption = None) -> None:
    """Describe a library: counts, model, size, folders."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        info = opened.info()
    counts, model = info.counts, info.model_info
    print(f"{info.name}: {counts.pictures:,} pictures and {counts.clips:,} clips")
    print(f"vectors     {counts.vectors:,}, {model.width} dimensions")
    print(f"model       {model.model} ({model.fingerprint[:8]})")
    print(f"on disk     {info.size / 1e6:.1f} MB, {counts.thumbnails:,} thumbnails")
    print(f"bad files   {counts.bad:,}")
    for folder in info.folders:
        print(f"folder      {printable(folder)}")
    for path in info.excluded:
        print(f"excluded    {printable(path)}")


@app.command("verify")
def library_verify(
    library: LibraryOption = None,
    files: Annotated[
        bool, typer.Option("--files", help="Also check that all files are unchanged.")
    ] = False,
) -> None:
    """Check a library for damage; exit with status 1 if there is any."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        problems = opened.verify(files=files)
        for problem in problems:
            print(printable(problem))
        print(f"{opened.name}: {pluralize(len(problems), 'problem') if problems else 'no damage'}")
    if problems:
        raise typer.Exit(1)


@app.command("merge")
def library_merge(
    others: Annotated[
        list[str],
        typer.Argument(help="Libraries made with the same model.", callback=refuse_passwords),
    ],
    library: LibraryOption = None,
) -> None:
    """Copy the contents of other libraries into one."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        for name in others:
            with Library(name) as other:
                print(f"{other.name}: {opened.merge(other):,} added")
        print(f"{opened.name}: {len(opened):,} in all")


@app.command("import")
def library_import(
    shards: Annotated[list[Path], typer.Argument(help="Folders written by `polyglance encode`.")],
    library: LibraryOption = None,
    quiet: Quiet = False,
) -> None:
    """Import shards of `polyglance encode`; run again for new ones."""
    from polyglance.search.bulk.shards import ShardFolder
    from polyglance.search.library import Library

    with Library(library) as opened:
        for folder in shards:
            report = opened.import_shards(folder, quiet=quiet)
            print_skipped_files(report)
            missing = len(ShardFolder(folder).pending())
            pending = f"; {missing:,} shards not encoded yet" if missing else ""
            print(f"{folder}: {report}{pending}")
        print(f"{opened.name}: {len(opened):,} in all")


@app.command("remove")
def library_remove(
    paths: Annotated[list[Path], typer.Argument(help="Folders or files; they stay on disk.")],
    library: LibraryOption = None,
) -> None:
    """Remove folders or files from a library, and exclude them from re-scans."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        removed = opened.remove(*paths)
        print(f"{opened.name}: {removed:,} removed; {len(opened):,} in all")
