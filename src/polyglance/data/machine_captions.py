"""Mark machine-translated captions in a file beside the manifest, one line per record.

    captions.jsonl            {"image": "1.jpg", "captions": {"en": [...], "de": [...]}}
    captions.machine.jsonl    {"record": "1.jpg", "machine": {"de": [0, 2]},
                               "translators": {"de": "opus-mt-en-de 1f0c2a5b9d3e4f60"}}

Here the two German captions are translations of the first and the third caption in the
source language; -1 would stand for one that a person wrote (`polyglance data merge`). Languages
that a line does not name are human captions. The first line names
the translators of all lines, with the beginning of their fingerprints.
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
"""By language, the index of the source caption that each caption translates, or `HUMAN`."""
HUMAN = -1
"""Marks a caption that is no translation among others that are."""


def machine_captions_path(manifest: str | Path) -> Path:
    """Return the path of the file that marks a manifest's machine captions."""
    path = Path(manifest)
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + ".machine.jsonl")


def write_machine_captions(
    manifest: str | Path,
    records: Iterable[tuple[Record, MachineCaptions]],
    translators: Mapping[str, str] | None = None,
) -> None:
    """Write the file that marks a manifest's machine captions.

    Args:
        manifest: The manifest.
        records: Its records, each with its machine captions.
        translators: Who translated into each language, if known.
    """
    with atomic_write(machine_captions_path(manifest)) as out:
        for number, (record, machine) in enumerate(records):
            line: dict[str, Any] = {
                "record": record.key,
                "machine": {k: list(v) for k, v in machine.items()},
            }
            if number == 0 and translators:
                line["translators"] = dict(translators)
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_translators(manifest: str | Path) -> dict[str, str]:
    """Return who translated a manifest's machine captions, by language, as far as known."""
    path = machine_captions_path(manifest)
    if not path.exists():
        return {}
    _, line = next(read_lines(path, Problems(strict=True)), (0, "{}"))
    try:
        content: Any = parse_json(line)
        return {str(code): str(name) for code, name in content["translators"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # written by an earlier version


def update_machine_captions(
    manifest: str | Path, records: Sequence[Record], marks: Sequence[MachineCaptions] | None
) -> None:
    """Mark the machine captions of a manifest just written, or with None remove an old file.

    Args:
        manifest: The manifest just written.
        records: Its records.
        marks: The machine captions of each record; None if there are none.
    """
    if marks is None:
        machine_captions_path(manifest).unlink(missing_ok=True)
        return
    if len(marks) != len(records):
        raise DataError(
            f"{manifest}: {len(records):,} records were written, but machine captions are marked"
            f" for {len(marks):,}: correct the malformed records of the source, or remove its"
            " .machine.jsonl file"
        )
    write_machine_captions(manifest, zip(records, marks, strict=True))


def read_with_machine_captions(
    manifest: str | Path, problems: Problems | None = None
) -> Iterator[tuple[Record, MachineCaptions]]:
    """Yield the records of a manifest, each with its machine captions.

    Without a file of marks all captions are human. With one, the manifest must be unchanged
    since both were written, and a malformed line is an error.
    """
    path = machine_captions_path(manifest)
    if not path.exists():
        for record in read_manifest(manifest, problems):
            yield record, {}
        return
    lines = read_lines(path, Problems(strict=True))
    for record in read_manifest(manifest):
        number, line = next(lines, (0, ""))
        key, machine = _parse(path, number, line)
        if key != record.key:
            raise _mismatch(path, manifest)
        yield record, machine
    if next(lines, None) is not None:
        raise _mismatch(path, manifest)


def count_machine_captions(manifest: str | Path, split: str | None = None) -> Mapping[str, int]:
    """Count the machine captions of a manifest, or of one split, by language."""
    counts: Counter[str] = Counter()
    if not machine_captions_path(manifest).exists():
        return counts
    for record, machine in read_with_machine_captions(manifest):
        if split is None or record.split == split:
            counts.update(
                {code: sum(n != HUMAN for n in places) for code, places in machine.items()}
            )
    return counts


def read_human_captions(manifest: str | Path) -> Iterator[Record]:
    """Yield the records of a manifest with human captions only, for evaluation."""
    for record, machine in read_with_machine_captions(manifest):
        human = {
            code: _human_texts(texts, machine.get(code)) for code, texts in record.captions.items()
        }
        yield replace(record, captions={code: texts for code, texts in human.items() if texts})


def _human_texts(texts: tuple[str, ...], places: tuple[int, ...] | None) -> tuple[str, ...]:
    if places is None or HUMAN not in places:
        return texts if places is None else ()
    return tuple(text for text, place in zip(texts, places, strict=True) if place == HUMAN)


def _parse(path: Path, number: int, line: str) -> tuple[str, MachineCaptions]:
    try:
        content: Any = parse_json(line)
        machine = {
            str(code): tuple(map(int, indices)) for code, indices in content["machine"].items()
        }
        return str(content["record"]), machine
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}:{number}: expected a record and its languages") from None


def _mismatch(path: Path, manifest: str | Path) -> DataError:
    return DataError(
        f"{path} does not match {manifest}, which has changed: translate it again, or delete"
        " that file if all captions are human"
    )
