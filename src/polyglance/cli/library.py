"""``polyglance library``: inspect and maintain libraries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.addresses import LibraryOption, refuse_passwords
from polyglance.cli.duplicates import library_duplicates
from polyglance.cli.hits import print_paths
from polyglance.cli.index import print_skipped_files
from polyglance.cli.output import Quiet, pluralize
from polyglance.errors import PolyglanceError, printable

app = typer.Typer(
    no_args_is_help=True, help="Look after libraries: problems, backup, repair, export."
)

app.command("duplicates")(library_duplicates)


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
    print(f"unreadable  {counts.bad:,}; `polyglance library problems` lists all that is skipped")
    for folder in info.folders:
        print(f"folder      {printable(folder)}")
    for path in info.excluded:
        print(f"excluded    {printable(path)}")


@app.command("problems")
def library_problems(
    folder: Annotated[Path | None, typer.Argument(help="Only in this folder.")] = None,
    library: LibraryOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print paths and reasons as JSON.")
    ] = False,
    paths: Annotated[
        bool, typer.Option("--paths", help="Print only the paths, one a line, for pipes.")
    ] = False,
    null: Annotated[
        bool, typer.Option("-0", "--null", help="As --paths, each ended by a null byte.")
    ] = False,
) -> None:
    """List all files that cannot be searched, and why."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        if folder is not None and not opened.covers(folder):
            raise PolyglanceError(
                f"{printable(str(folder))}: nothing of this is in the library; `polyglance library"
                " info` lists its folders"
            )
        problems = opened.problems(folder)
    if as_json:
        rows = [{"path": bad.path, "reason": bad.reason} for bad in problems]
        print(json.dumps(rows, indent=2))
    elif paths or null:
        print_paths([Path(bad.path) for bad in problems], "\0" if null else "\n")
    else:
        for bad in problems:
            print(f"{printable(bad.path)}: {bad.reason}")
        print(pluralize(len(problems), "problem") if problems else "no problems", file=sys.stderr)


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


@app.command("repair")
def library_repair(
    library: LibraryOption = None,
    model: Annotated[str | None, typer.Option(help="The library's model, if it has moved.")] = None,
    quiet: Quiet = False,
) -> None:
    """Keep what can be read of a damaged library, and index the rest again."""
    from polyglance.search.repair import repair

    done = repair(library, model=model, quiet=quiet)
    for sentence in done.damage:
        print(printable(sentence))
    if not done.damage:
        print("no damage")
        return
    print(f"{done.kept:,} kept; indexed again: {done.report or 'nothing'}")
    if done.report:
        print_skipped_files(done.report, library)
    for sentence in done.lost:
        print(sentence, file=sys.stderr)
    if done.damaged_file:
        print(f"the damaged file is kept as {printable(str(done.damaged_file))}")


@app.command("backup")
def library_backup(
    target: Annotated[Path, typer.Argument(help="The file to write.")],
    library: LibraryOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
) -> None:
    """Copy a library into one file, also while it is served or indexed; the copy is verified."""
    from polyglance.search.library_files import back_up

    count = back_up(_library_file(library), target.expanduser(), overwrite=overwrite)
    print(f"{target}: {count:,} pictures and clips")


@app.command("restore")
def library_restore(
    backup: Annotated[Path, typer.Argument(help="A file of `polyglance library backup`.")],
    library: LibraryOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the library; it stays beside the new one.")
    ] = False,
) -> None:
    """Make a backup the library."""
    from polyglance.search.library_files import restore

    path = _library_file(library)
    count, before = restore(backup.expanduser(), path, overwrite=overwrite)
    print(f"{path}: {count:,} pictures and clips")
    if before:
        print(f"the library of before is {printable(str(before))}")


@app.command("export")
def library_export(
    target: Annotated[
        Path, typer.Argument(help="vectors.npy, with vectors.jsonl beside it, or vectors.parquet.")
    ],
    library: LibraryOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files if they exist.")
    ] = False,
) -> None:
    """Write all vectors and the paths they belong to, as NumPy or Parquet."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        written = opened.export(target.expanduser(), overwrite=overwrite)
    names = " and ".join(printable(str(file)) for file in written.files)
    print(f"{names}: {pluralize(written.vectors, 'vector')} of {written.width} dimensions")


@app.command("trust")
def library_trust(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders; without any, those that the library names."),
    ] = None,
    library: LibraryOption = None,
) -> None:
    """Confirm folders of a library, so that `polyglance serve` hands out their files."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        for folder in opened.trust(*(folders or ())):
            print(f"confirmed   {printable(folder)}")


def _library_file(library: str | None) -> Path:
    from polyglance.search.backends import FileBackend, backend_for, default_library

    backend = backend_for(default_library() if library is None else library)
    if not isinstance(backend, FileBackend):
        raise PolyglanceError(
            f"{backend.name} is on PostgreSQL: back it up with `pg_dump --schema=polyglance`, and"
            " restore that with `psql` or `pg_restore`"
        )
    return backend.path


@app.command("merge")
def library_merge(
    others: Annotated[
        list[str],
        typer.Argument(
            help="Libraries whose models have the same vectors of pictures.",
            callback=refuse_passwords,
        ),
    ],
    library: LibraryOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Also add folders that you have not confirmed.")
    ] = False,
) -> None:
    """Copy the contents of other libraries into one."""
    from polyglance.search.library import Library

    with Library(library) as opened:
        for name in others:
            with Library(name) as other:
                print(f"{other.name}: {opened.merge(other, trust=trust):,} added")
                for folder in () if trust else other.unconfirmed:
                    print(
                        f"the folder {printable(folder)} was not added, since you have not"
                        f" confirmed it: if you know {other.name}, --trust adds it",
                        file=sys.stderr,
                    )
        print(f"{opened.name}: {len(opened):,} in all")


@app.command("import")
def library_import(
    shards: Annotated[list[Path], typer.Argument(help="Folders written by `polyglance encode`.")],
    library: LibraryOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Also add the encoded folders, for re-scans and serve.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Import shards of `polyglance encode`; run again for new ones."""
    from polyglance.search.bulk.shard_import import scanned_folders
    from polyglance.search.bulk.shards import ShardFolder
    from polyglance.search.library import Library
    from polyglance.search.scan import is_within

    with Library(library) as opened:
        for folder in shards:
            report = opened.import_shards(folder, trust=trust, quiet=quiet)
            print_skipped_files(report, library)
            for path in scanned_folders(ShardFolder(folder)):
                if not any(is_within(path, other) for other in opened.folders):
                    print(
                        f"the folder {printable(path)} was not added, since you have not"
                        f" confirmed it: if you know {printable(str(folder))}, --trust adds it",
                        file=sys.stderr,
                    )
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
