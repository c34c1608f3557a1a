"""Put several reproductions of a target together, such as one seed each, and train nothing.

A table of many runs takes hours of an accelerator. Its seeds, or its rows, may be measured one
after another, wherever there is one: what is merged are the files of the target's own folder,
``table.json`` and ``queries.npz``, which are small enough to keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.run_folder import QUERIES
from polyglance.reproduce.queries import read_queries, write_queries
from polyglance.reproduce.results import Measured, report_path
from polyglance.reproduce.run import Reproduced
from polyglance.reproduce.runs import Job, Report, folder_name
from polyglance.reproduce.target import Target, find_target
from polyglance.reproduce.write import write_files

TABLE = "table.json"
_PREPARED = "OUT/cache/"
"""In changes: what a reproduction prepared for its runs (`polyglance.reproduce.run.symbolic`)."""


def merge(name: str, folders: Sequence[Path], out: Path) -> Reproduced:
    """Write a target's files from those of earlier reproductions.

    Args:
        name: Of the target, such as ``coco/uc2``.
        folders: The ``--out`` of each reproduction; a run with a seed may be in one of them only.
        out: Results go to OUT/TARGET.
    """
    _, target = find_target(name)
    tables = {folder: _read_table(folder / name / TABLE) for folder in folders}
    _refuse_other_settings(name, tables)
    reports: dict[Job, Report] = {}
    origin: dict[Job, Path] = {}
    for folder, table in tables.items():
        for job, report in _reports(target, table).items():
            if job in reports:
                raise PolyglanceError(
                    f"{job[0]!r} with seed {job[1]} is in {origin[job]} and in {folder}: merge"
                    " reproductions with other seeds or rows"
                )
            reports[job], origin[job] = report, folder
    with TemporaryDirectory() as scratch:
        unpacked: dict[Job, Path] = {}
        for (run, seed), folder in origin.items():
            queries = folder / name / QUERIES
            arrays = read_queries(queries, (run, seed)) if queries.is_file() else {}
            unpacked[run, seed] = Path(scratch) / folder_name(run) / str(seed)
            unpacked[run, seed].mkdir(parents=True)
            if arrays:
                np.savez(unpacked[run, seed] / QUERIES, allow_pickle=False, **arrays)
        measured = Measured(target, reports, unpacked)
        files = write_files(measured, out / name, _details([*tables.values()], reports))
        if written := write_queries(unpacked, measured.places, out / name / QUERIES):
            files.append(written)
    return Reproduced(measured, files)


def _read_table(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{path}: there is no such file; give the --out of an earlier 'polyglance reproduce'"
        ) from None
    except ValueError as error:
        raise DataError(f"{path}: this is no table of 'polyglance reproduce' ({error})") from error
    return table


def _refuse_other_settings(name: str, tables: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuse to merge what was not measured alike."""
    first, *others = tables
    for folder in others:
        one, other = (_settings(tables[path]) for path in (first, folder))
        if one != other:
            raise PolyglanceError(
                f"{name} was measured with other settings in {first} ({one}) than in {folder}"
                f" ({other}): these are different tables"
            )


def _settings(table: Mapping[str, Any]) -> str:
    """Name the settings of all runs, but for what was prepared, which each reproduction makes."""
    changes = [change for change in table.get("changes", []) if _PREPARED not in change]
    return ", ".join([*(["toy data"] if table.get("toy") else []), *changes]) or "as the recipe"


def _reports(target: Target, table: Mapping[str, Any]) -> dict[Job, Report]:
    """Return for each run and seed of a table a report that holds its figures."""
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


def _details(parts: Sequence[Mapping[str, Any]], reports: Mapping[Job, Report]) -> dict[str, Any]:
    """Say when, where and from what the parts were measured."""
    names = ("date", "commit", "hardware", "python")
    several = {key: ", ".join(dict.fromkeys(str(part[key]) for part in parts)) for key in names}
    return {
        **several,
        "seeds": sorted({seed for _, seed in reports}),
        "changes": parts[0].get("changes", []),
        **({"toy": True} if parts[0].get("toy") else {}),
        "parts": [{key: part.get(key) for key in (*names, "seeds")} for part in parts],
    }
