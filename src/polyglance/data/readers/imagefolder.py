"""The imagefolder of Hugging Face's ``datasets``: pictures, and a table that captions them.

``metadata.jsonl`` (or ``.csv``, ``.parquet``) lies beside the pictures, in the folder itself or in
one a split, and names each by its ``file_name``, relative to the table. The other columns are those
of `polyglance.data.readers.hub_columns`. Pictures that no table names are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from polyglance.data.readers import csv_files
from polyglance.data.readers.base import ReadOptions
from polyglance.data.readers.hub_columns import make_record
from polyglance.data.readers.parquet import table_rows
from polyglance.data.readers.validation import check_object, check_text, reporting
from polyglance.errors import DataError, Problems, printable
from polyglance.records import Record, parse_json, read_lines

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_NAMES = ("file_name", "image_file_name")


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record for each picture that a table names."""
    root = source if source.is_dir() else source.parent
    for table in _tables(source):
        folder = PurePosixPath(table.parent.relative_to(root).as_posix())
        for line, row in _rows(table, problems):
            with reporting(problems, table, line):
                given = next((row[name] for name in _NAMES if name in row), None)
                name = check_text(given, "'file_name'")
                if name.startswith("/") or ".." in PurePosixPath(name).parts:
                    raise ValueError(f"{name!r} to lie in the folder of the table")
                path = folder / name
                yield make_record(row, options.path(path.as_posix()), path, options)


def _tables(source: Path) -> list[Path]:
    if source.is_file() and source.name in METADATA:
        return [source]
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(source)
        for name in METADATA
        if name in names
    ]
    if not found:
        raise DataError(
            f"{printable(str(source))}: expected pictures with {METADATA[0]}, whose lines are such"
            ' as {"file_name": "1.jpg", "text": "a dog"}'
        )
    return sorted(found)


def _rows(table: Path, problems: Problems) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Yield the rows of a table with their lines."""
    if table.suffix == ".parquet":
        for row in table_rows(table, problems):
            yield None, row
    elif table.suffix == ".csv":
        yield from csv_files.rows(table, [_NAMES[0]], problems)
    else:
        for number, line in read_lines(table, problems):
            if line.strip():
                with reporting(problems, table, number):
                    yield number, check_object(parse_json(line), "the line")
