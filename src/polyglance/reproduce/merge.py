"""Put several reproductions of a target together, such as one seed each, and train nothing.

A table of many runs takes hours of an accelerator. Its seeds, or its rows, may be measured one
after another, wherever there is one: what is merged are the files of the target's own folder,
``table.json`` and ``queries.npz``, which are small enough to keep.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.run_folder import QUERIES
from polyglance.records import parse_json
from polyglance.reproduce.queries import read_queries, write_queries
from polyglance.reproduce.results import Measured, report_path
from polyglance.reproduce.runs import Job, Report, folder_name
from polyglance.reproduce.target import Target, find_target
from polyglance.reproduce.write import write_files

TABLE = "table.json"
_ABOUT = ("date", "commit", "hardware", "python")
_NEEDED = (*_ABOUT, "rows", "settings", "seeds")

Table = Mapping[str, Any]


def merge(name: str, folders: Sequence[Path], out: Path) -> list[Path]:
    """Write a target's files from those of earlier reproductions.

    Args:
        name: Of the target, such as ``coco/uc2``.
        folders: The ``--out`` of each reproduction.
        out: Results go to OUT/TARGET.

    Returns:
        The files.
    """
    _, target = find_target(name)
    if not folders:
        raise PolyglanceError("name the folders of earlier reproductions to merge")
    if any(folder.resolve() == out.resolve() for folder in folders):
        raise PolyglanceError(f"{out} is one of the parts: give another --out for the merged table")
    tables = {folder: _read_table(folder / name / TABLE) for folder in folders}
    for folder, table in tables.items():
        _require_target(target, folder, table)
    _require_same_settings(name, tables)
    reports, origin = _join_reports(target, tables)
    details = _details([*tables.values()], reports)
    with TemporaryDirectory() as scratch:
        unpacked = {job: Path(scratch) / folder_name(job[0]) / str(job[1]) for job in origin}
        _unpack_queries({job: origin[job] / name / QUERIES for job in origin}, unpacked)
        measured = Measured(target, reports, unpacked)
        files = write_files(measured, out / name, details)
        if written := write_queries(unpacked, measured.places, out / name / QUERIES):
            files.append(written)
    return files


def _read_table(path: Path) -> Table:
    try:
        table = parse_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path}: there is no such file; give the --out of an earlier 'polyglance reproduce'"
        ) from None
    except ValueError as error:
        raise DataError(f"{path}: not {error}; measure this part again") from error
    if not isinstance(table, dict) or (missing := [key for key in _NEEDED if key not in table]):
        lacks = f" (it lacks {', '.join(missing)})" if isinstance(table, dict) else ""
        raise DataError(f"{path}: no table of this version of 'polyglance reproduce'{lacks}")
    return table


def _require_target(target: Target, folder: Path, table: Table) -> None:
    known = [row.name for row in target.rows]
    for row in table["rows"]:
        if row["row"] not in known:
            raise DataError(
                f"{folder / target.name / TABLE} has a row {row['row']!r}, which {target.name} has"
                " not: it was measured by another version"
            )


def _require_same_settings(name: str, tables: Mapping[Path, Table]) -> None:
    """Raise unless runs that several parts measured had the same settings in all of them."""
    first: dict[str, Path] = {}
    for folder, table in tables.items():
        for run, settings in table["settings"].items():
            before = first.setdefault(run, folder)
            if tables[before]["settings"][run] != settings:
                raise PolyglanceError(
                    f"{name}: {run!r} had other settings in {before} than in {folder} (changes:"
                    f" {_changes(tables[before])}; {_changes(table)}): these are different tables"
                )


def _changes(table: Table) -> str:
    return ", ".join(table.get("changes", [])) or "none, but another version of the recipe"


def _join_reports(
    target: Target, tables: Mapping[Path, Table]
) -> tuple[dict[Job, Report], dict[Job, Path]]:
    """Return for each run and seed a report that holds its figures, and the part it is from."""
    reports: dict[Job, Report] = {}
    origin: dict[Job, Path] = {}
    for folder, table in tables.items():
        for job, report in _reports(target, table).items():
            if reports.setdefault(job, report) != report:
                raise PolyglanceError(
                    f"{job[0]!r} with seed {job[1]} was measured differently in {origin[job]} and"
                    f" in {folder}: merge reproductions with other seeds or rows"
                )
            origin.setdefault(job, folder)
    return reports, origin


def _reports(target: Target, table: Table) -> dict[Job, Report]:
    rows = {row["row"]: row["measured"] for row in table["rows"]}
    reports: dict[Job, Report] = {}
    for row in target.rows:
        for column in target.columns:
            run = row.run_of(column)
            figures = rows.get(row.name, {}).get(column.name)
            if column.mean_of or run is None or figures is None:
                continue
            for seed, value in figures["values"].items():
                place: dict[str, Any] = reports.setdefault((run, int(seed)), {})
                *above, last = report_path(target, row, column).split(".")
                for key in above:
                    place = place.setdefault(key, {})
                place[last] = value / column.scale
    return reports


def _unpack_queries(files: Mapping[Job, Path], folders: Mapping[Job, Path]) -> None:
    """Write the ranks of each run into a folder of its own; all must have some, or none."""
    without: list[Job] = []
    for job, file in files.items():
        try:
            arrays = read_queries(file, job) if file.is_file() else {}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{file}: cannot be read ({error}): measure it again") from error
        if not arrays:
            without.append(job)
            continue
        folders[job].mkdir(parents=True)
        np.savez(folders[job] / QUERIES, allow_pickle=False, **arrays)
    if without and len(without) < len(files):
        run, seed = without[0]
        raise DataError(
            f"{files[without[0]]} lacks the ranks of {run!r} with seed {seed}, which other parts"
            " have: measure this part again to compare all queries"
        )


def _details(tables: Sequence[Table], reports: Mapping[Job, Report]) -> dict[str, Any]:
    """Say when, where and from what the parts were measured; what was merged names its parts."""
    parts = [part for table in tables for part in table.get("parts", [table])]
    joined = {key: ", ".join(dict.fromkeys(str(part[key]) for part in parts)) for key in _ABOUT}
    toy = {"toy": True} if any(table.get("toy") for table in tables) else {}
    return {
        **joined,
        "seeds": sorted({seed for _, seed in reports}),
        "changes": tables[0].get("changes", []),
        "settings": {run: one for table in tables for run, one in table["settings"].items()},
        **toy,
        "parts": [{key: part.get(key) for key in (*_ABOUT, "seeds")} for part in parts],
    }
