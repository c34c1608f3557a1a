"""Karpathy's splits (Karpathy and Fei-Fei, 2015) of Flickr8k, Flickr30k and MSCOCO.

Layout: ``dataset_coco.json`` and the like, one JSON object; each entry of ``images`` has a
``filename``, a ``split`` and ``sentences`` with their ``raw`` text. MSCOCO's also has a
``filepath`` ("val2014") and a fourth split, "restval": the remaining validation images, often
added to training. It keeps its name here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyglance.data.readers.base import ReadOptions, find_files, normalise_split, without_gz
from polyglance.data.readers.json_files import entries, load_json
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per image."""
    for path in find_files(source, _is_dataset, "files named dataset_coco.json ..."):
        document = load_json(path, problems, dict)
        for place, entry in entries(path, document, "images", problems):
            captions: list[str] = []
            within = f"{place}."
            for inner, sentence in entries(path, entry, "sentences", problems, inside=within):
                with reporting(problems, path, place=inner):
                    captions.append(_sentence(sentence))
            with reporting(problems, path, place=place):
                yield _record(entry, tuple(captions), options)


def _is_dataset(name: str) -> bool:
    return name.startswith("dataset_") and without_gz(name).endswith(".json")


def _record(entry: dict[str, Any], captions: tuple[str, ...], options: ReadOptions) -> Record:
    name = check_text(entry.get("filename"), "'filename'")
    if "filepath" in entry:
        name = f"{check_text(entry['filepath'], 'filepath')}/{name}"
    split = entry.get("split", options.split)
    return Record(
        image=options.path(name),
        captions={options.language or "en": captions} if captions else {},
        split=None if split is None else normalise_split(check_text(split, "'split'")),
    )


def _sentence(entry: dict[str, Any]) -> str:
    if "raw" not in entry and isinstance(entry.get("tokens"), list):
        return check_text(
            " ".join(check_text(token, "a token") for token in entry["tokens"]), "'tokens'"
        )
    return check_text(entry.get("raw"), "'raw'")
