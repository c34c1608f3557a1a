"""Tars of WebDataset's layout: ``KEY.jpg`` with ``KEY.json`` or ``KEY.txt``.

A JSON file is a record as 'polyglance data shard' writes it, or has a ``caption`` (as in
img2dataset's tars); else the text file is the caption. Images are named with their tar,
``NAME-000000.tar/KEY.jpg``, by which training finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyglance.data.readers.base import ReadOptions
from polyglance.data.tar_index import Sample, scan_tar
from polyglance.data.tars import TarSet
from polyglance.errors import Problems, printable
from polyglance.records import Record, parse_json

_CAPTIONS = ("caption", "captions", "text", "TEXT")
_MAX_TEXT_BYTES = 1 << 20


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record for each image of the tars."""
    tars = TarSet(source)
    language = options.language or "en"
    for tar in tars.tars:
        path = Path(tars.folder) / tar.name
        with path.open("rb") as headers, path.open("rb") as contents:
            for sample in scan_tar(headers, str(path)):
                if (image := sample.image) is None:
                    continue
                name = f"{tar.name}/{sample.key}.{image}"

                def member(extension: str | None, sample: Sample = sample) -> bytes | None:
                    if extension not in sample.members:
                        return None
                    start, size = sample.members[extension]
                    contents.seek(start)
                    return contents.read(min(size, _MAX_TEXT_BYTES))

                try:
                    fields = _fields(member("json"), member(sample.text), language)
                    fields |= {"image": options.path(name), "id": fields.get("id") or sample.key}
                    record = Record.from_json(fields)
                except ValueError as error:
                    problems.report(path, None, f"expected {error} in {printable(sample.key)}")
                    continue
                yield record if record.split else replace(record, split=options.split)


def _fields(json_text: bytes | None, text: bytes | None, language: str) -> dict[str, Any]:
    """Return a record's fields."""
    fields = {} if json_text is None else parse_json(json_text)
    if not isinstance(fields, dict):
        raise ValueError("a JSON object")
    if isinstance(fields.get("captions"), dict):
        return fields
    captions = _captions(fields)
    if not captions and text is not None:
        captions = [text.decode("utf-8", "replace").strip()]
    return {"captions": {language: captions} if any(captions) else {}}


def _captions(fields: dict[str, Any]) -> list[str]:
    for name in _CAPTIONS:
        value = fields.get(name)
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(one, str) for one in texts):
            return [one.strip() for one in texts if one.strip()]
    return []
