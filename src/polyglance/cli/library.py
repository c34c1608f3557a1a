"""``polyglance library``: what is in a library, and keeping it in order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.index import LibraryOption, tell_report
from polyglance.cli.output import Quiet
from polyglance.errors import printable

app = typer.Typer(no_args_is_help=True, help="Libraries of pictures and clips.")


@app.command("info")
def library_info(library: LibraryOption = None) -> None:
    """Tell what a library holds and which model it is of."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        info = opened.info()
    counts, manifest = info.counts, info.manifest
    print(f"{info.name}: {counts.pictures:,} pictures and {counts.clips:,} clips")
    print(f"vectors     {counts.vectors:,}, {manifest.width} wide")
    print(f"model       {manifest.model} ({manifest.fingerprint[:8]})")
    print(f"on disk     {info.size / 1e6:.1f} MB, {counts.thumbnails:,} thumbnails")
    print(f"bad files   {counts.bad:,}")
    for folder in info.folders:
        print(f"folder      {printable(folder)}")
    for path in info.left_out:
        print(f"left out    {printable(path)}")


@app.command("verify")
def library_verify(
    library: LibraryOption = None,
    files: Annotated[
        bool, typer.Option("--files", help="Read all files as well: are they as indexed?")
    ] = False,
) -> None:
    """Look for damage; status 1 if there is any."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        found = opened.verify(files=files)
        for sentence in found:
            print(printable(sentence))
        print(f"{opened.name}: {f'{len(found):,} damages' if found else 'no damage'}")
    if found:
        raise typer.Exit(1)


@app.command("merge")
def library_merge(
    others: Annotated[list[str], typer.Argument(help="Libraries of the same model.")],
    library: LibraryOption = None,
) -> None:
    """Take what other libraries hold into one; they stay as they are."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        for other in others:
            with Library(other) as theirs:
                print(f"{theirs.name}: {opened.merge(theirs):,} taken in")
        print(f"{opened.name}: {len(opened):,} in all")


@app.command("import")
def library_import(
    shards: Annotated[list[Path], typer.Argument(help="Folders that `polyglance encode` made.")],
    library: LibraryOption = None,
    quiet: Quiet = False,
) -> None:
    """Take in what was encoded in bulk; run again for shards that were made since."""
    from polyglance.search.bulk.shards import ShardFolder
    from polyglance.search.library import Library

    with Library(library) as opened:
        for folder in shards:
            report = opened.import_shards(folder, quiet=quiet)
            tell_report(report)
            missing = len(ShardFolder(folder).pending())
            still = f"; {missing:,} shards are not made yet" if missing else ""
            print(f"{folder}: {report}{still}")
        print(f"{opened.name}: {len(opened):,} in all")


@app.command("remove")
def library_remove(
    paths: Annotated[list[Path], typer.Argument(help="Folders or files; the disk keeps them.")],
    library: LibraryOption = None,
) -> None:
    """Delete folders or files from a library, and leave them out from now on."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        removed = opened.remove(*paths)
        print(f"{opened.name}: {removed:,} removed; {len(opened):,} in all")
