"""Read CSV files with a header; whatever is malformed becomes a reported problem."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyglance.errors import Problems
from polyglance.records import read_lines


def rows(
    path: Path, columns: Sequence[str], problems: Problems
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row's line number and its fields by column.

    Args:
        path: A file whose first line names the columns; a missing column is reported, and
            then nothing is yielded.
        columns: The columns that must be there.
        problems: Collects malformed rows, those with fewer fields than the header.
    """
    reader = csv.reader(_lines(path, problems))
    header: list[str] | None = None
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            problems.report(path, reader.line_num, f"expected comma-separated values ({error})")
            continue
        if fields is None:
            return
        if header is None:
            header = [name.strip() for name in fields]
            if missing := [name for name in columns if name not in header]:
                problems.report(path, 1, f"expected a column {missing[0]!r} in the first line")
                return
        elif len(fields) >= len(header):
            # A sentence with commas that are not in quotes, in the last column.
            fields[len(header) - 1 :] = [",".join(fields[len(header) - 1 :])]
            yield reader.line_num, dict(zip(header, fields, strict=True))
        elif any(field.strip() for field in fields):
            problems.report(path, reader.line_num, f"expected {len(header)} fields")


def _lines(path: Path, problems: Problems) -> Iterator[str]:
    """Yield the lines with their ends, which fields in quotes may contain."""
    for _, line in read_lines(path, problems):
        yield line + "\n"
