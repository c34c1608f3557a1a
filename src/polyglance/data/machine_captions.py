"""Which captions of a manifest a machine made: a file beside it, a line for each record.

    captions.jsonl            {"image": "1.jpg", "captions": {"en": [...], "de": [...]}}
    captions.machine.jsonl    {"record": "1.jpg", "machine": {"de": [0, 2]}}

says that the two German captions are translations of the first and the third in
the source language. Languages that a line does not name were written by people.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from polyglance.errors import DataError, Problems
from polyglance.records import Record, atomic_write, parse_json, read_lines, read_manifest

MachineCaptions: TypeAlias = Mapping[str, tuple[int, ...]]
"""By language, of which caption of the source language each caption is a translation."""


def machine_captions_path(manifest: str | Path) -> Path:
    """Where it says which captions of a manifest a machine made."""
    path = Path(manifest)
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + ".machine.jsonl")


def write_machine_captions(
    manifest: str | Path, records: Iterable[tuple[Record, MachineCaptions]]
) -> None:
    """Write the file beside a manifest."""
    with atomic_write(machine_captions_path(manifest)) as out:
        for record, machine in records:
            line = {"record": record.key, "machine": {k: list(v) for k, v in machine.items()}}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def update_machine_captions(
    manifest: str | Path, records: Sequence[Record], marks: Sequence[MachineCaptions] | None
) -> None:
    """Say beside a manifest just written what of each record a machine made; None for nothing."""
    if marks is None:
        machine_captions_path(manifest).unlink(missing_ok=True)  # of what was there before
        return
    if len(marks) != len(records):
        raise DataError(
            f"{manifest}: {len(records):,} records were written of {len(marks):,} that a file"
            " says which captions a machine made of: mend what is malformed, or remove that file"
        )
    write_machine_captions(manifest, zip(records, marks, strict=True))


def read_with_machine_captions(
    manifest: str | Path, problems: Problems | None = None
) -> Iterator[tuple[Record, MachineCaptions]]:
    """The records of a manifest, each with what of it a machine made.

    Without the file beside it nothing is. Where there is one the manifest must be as it
    was written together with it; then a malformed line of it is an error.
    """
    beside = machine_captions_path(manifest)
    if not beside.exists():
        for record in read_manifest(manifest, problems):
            yield record, {}
        return
    lines = read_lines(beside, Problems(strict=True))
    for record in read_manifest(manifest):
        number, line = next(lines, (0, ""))
        key, machine = _parse(beside, number, line)
        if key != record.key:
            raise _apart(beside, manifest)
        yield record, machine
    if next(lines, None) is not None:
        raise _apart(beside, manifest)


def count_machine_captions(manifest: str | Path, split: str | None = None) -> Mapping[str, int]:
    """How many captions of a manifest, or one split of it, a machine made, by language."""
    counts: Counter[str] = Counter()
    if not machine_captions_path(manifest).exists():
        return counts
    for record, machine in read_with_machine_captions(manifest):
        if split is None or record.split == split:
            counts.update({code: len(record.captions.get(code, ())) for code in machine})
    return counts


def read_human_captions(manifest: str | Path) -> Iterator[Record]:
    """The records of a manifest with the captions that people wrote, to measure on."""
    for record, machine in read_with_machine_captions(manifest):
        human = {code: texts for code, texts in record.captions.items() if code not in machine}
        yield replace(record, captions=human)


def _parse(path: Path, number: int, line: str) -> tuple[str, MachineCaptions]:
    try:
        content: Any = parse_json(line)
        machine = {str(code): tuple(map(int, of)) for code, of in content["machine"].items()}
        return str(content["record"]), machine
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}:{number}: expected a record and its languages") from None


def _apart(beside: Path, manifest: str | Path) -> DataError:
    return DataError(
        f"{beside} is of another manifest than {manifest} is now: translate it again, or delete"
        " that file if people wrote all captions"
    )
