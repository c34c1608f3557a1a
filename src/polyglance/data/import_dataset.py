"""Import a dataset's published files into a manifest (``polyglance data import``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from polyglance.data.machine_captions import (
    machine_captions_path,
    read_with_machine_captions,
    update_machine_captions,
)
from polyglance.data.readers import ReadOptions, find_format, read_dataset
from polyglance.errors import DataError, PolyglanceError, Problems, printable
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.utils.progress import progress

_BESIDE_PICTURES = ("jsonl", "imagefolder", "captioned-folder")
"""Formats whose files lie beside their pictures."""
_WITH_PICTURES = ("parquet",)
"""Formats whose files contain their pictures."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The number of records written, and the malformed entries skipped."""

    records: int
    problems: Problems


def import_dataset(
    format: str,
    source: str | Path,
    out: str | Path,
    options: ReadOptions | None = None,
    *,
    strict: bool = False,
    quiet: bool = True,
) -> ImportResult:
    """Write a dataset in its published format as a manifest.

    If the source is itself a manifest, its marks of machine captions are copied too. A source
    without any record is an error, and nothing is written.

    Args:
        format: One of `polyglance.data.readers.FORMATS`.
        source: The dataset's file or folder.
        out: The manifest to write.
        options: What the files do not say; ``options.images`` is relative to the working
            directory and is rewritten relative to the manifest's folder. Pictures inside of
            Parquet files are written there, else to ``NAME-images`` beside ``NAME.jsonl``.
        strict: Raise the first malformed entry as an error instead of skipping it.
        quiet: Show no progress bar.
    """
    if Path(out).exists() and Path(source).exists() and Path(out).samefile(source):
        raise PolyglanceError(f"{printable(str(out))} is the source: give another --out")
    problems = Problems(strict=strict)
    options = _relative_to_manifest(format, Path(source), Path(out), options or ReadOptions())
    records = _with_progress(
        read_dataset(format, source, options, problems), format, source, problems, quiet
    )
    marks = None
    if find_format(format).name == "jsonl" and machine_captions_path(source).is_file():
        marks = [machine for _, machine in read_with_machine_captions(source)]
    count = write_manifest(out, records)
    update_machine_captions(out, [] if marks is None else list(read_manifest(out)), marks)
    return ImportResult(count, problems)


def _with_progress(
    records: Iterator[Record], format: str, source: str | Path, problems: Problems, quiet: bool
) -> Iterator[Record]:
    count = 0
    with progress(f"importing {format}", None, quiet=quiet) as advance:
        for count, record in enumerate(records, start=1):
            yield record
            if count % 1000 == 0:
                advance(1000)
    if count == 0:
        reason = f"; {problems.items[0]}" if problems else ""
        more = f" (and {len(problems) - 1:,} more problems)" if len(problems) > 1 else ""
        where = printable(str(source))
        raise DataError(f"{where}: no record of format {format!r}{reason}{more}")


def _relative_to_manifest(
    format: str, source: Path, out: Path, options: ReadOptions
) -> ReadOptions:
    """Return the options with ``images`` relative to the manifest's folder.

    Some formats name pictures relative to the source, unless ``images`` is given. Pictures inside
    of Parquet files are written to ``images``, else beside the manifest.
    """
    folder = options.images
    name = find_format(format).name
    if not folder and name in _BESIDE_PICTURES:
        folder = str(source if source.is_dir() else source.parent)
    elif not folder and name in _WITH_PICTURES:
        folder = str(out.parent / f"{out.name.partition('.')[0]}-images")
    if name in _WITH_PICTURES and "://" not in folder:
        options = replace(options, unpack=folder)
    if not folder or "://" in folder or (options.images and Path(folder).is_absolute()):
        return options
    relative = os.path.relpath(folder, out.parent).replace(os.sep, "/")
    return replace(options, images="" if relative == "." else relative)
