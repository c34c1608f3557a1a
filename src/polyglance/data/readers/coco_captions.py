"""MSCOCO captions (Chen et al., 2015).

Layout: ``captions_train2014.json``, ``captions_val2017.json`` ..., each one JSON object
(`polyglance.data.readers.coco`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers import coco
from polyglance.data.readers.base import ReadOptions, find_files, without_gz
from polyglance.errors import Problems
from polyglance.records import Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per image; ``options.language`` replaces English."""
    expected = "files named captions_train2014.json, captions_val2014.json ..."
    for path in find_files(source, _is_captions, expected):
        subset = coco.subset_in_name(path)
        yield from coco.read_captions(path, options.language or "en", subset, options, problems)


def _is_captions(name: str) -> bool:
    return name.startswith("captions_") and without_gz(name).endswith(".json")
