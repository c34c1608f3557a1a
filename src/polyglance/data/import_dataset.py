"""From a dataset's published files to a manifest: what ``polyglance data import`` does."""

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


@dataclass(frozen=True, slots=True)
class ImportResult:
    """How many records were written, and what was malformed and skipped."""

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
    """Write the manifest ``out`` of a dataset in its published format.

    ``options.images`` is the folder of the pictures as seen from here; the
    manifest has them as seen from its own folder. Malformed entries are
    skipped and counted, or, with ``strict``, the first one is an error; so is
    a source without any record, for which nothing is written. What a manifest
    says of captions that a machine made is said beside the new one too.
    """
    if Path(out).exists() and Path(source).exists() and Path(out).samefile(source):
        raise PolyglanceError(f"{printable(str(out))} is the source itself: give another --out")
    problems = Problems(strict=strict)
    options = _seen_from_manifest(format, Path(source), Path(out), options or ReadOptions())
    records = _counted(
        read_dataset(format, source, options, problems), format, source, problems, quiet
    )
    marks = None
    if find_format(format).name == "jsonl" and machine_captions_path(source).is_file():
        marks = [machine for _, machine in read_with_machine_captions(source)]
    count = write_manifest(out, records)
    update_machine_captions(out, [] if marks is None else list(read_manifest(out)), marks)
    return ImportResult(count, problems)


def _counted(
    records: Iterator[Record], format: str, source: str | Path, problems: Problems, quiet: bool
) -> Iterator[Record]:
    count = 0
    with progress(f"importing {format}", None, quiet=quiet) as advance:
        for count, record in enumerate(records, start=1):
            yield record
            if count % 1000 == 0:
                advance(1000)
    if count == 0:
        why = f"; {problems.items[0]}" if problems else ""
        more = f" (and {len(problems) - 1:,} more problems)" if len(problems) > 1 else ""
        where = printable(str(source))
        raise DataError(f"{where}: no record of format {format!r} in it{why}{more}")


def _seen_from_manifest(format: str, source: Path, out: Path, options: ReadOptions) -> ReadOptions:
    """The options with the folder of the pictures as the manifest has to name it.

    The lines of a ``jsonl`` file name pictures from the file's own folder, so
    that is where they are unless ``images`` says otherwise.
    """
    folder = options.images
    if not folder and find_format(format).name == "jsonl":
        folder = str(source if source.is_dir() else source.parent)
    elif not folder or "://" in folder or Path(folder).is_absolute():
        return options
    seen = os.path.relpath(folder, out.parent).replace(os.sep, "/")
    return replace(options, images="" if seen == "." else seen)
