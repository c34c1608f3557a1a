"""YJ Captions 26k (Miyazaki and Shimizu, 2016): Japanese captions of MSCOCO train2014.

Layout: ``yjcaptions26k_clean.json`` in MSCOCO's format (`polyglance.data.readers.coco`). An
image that the file does not name belongs to ``train2014``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers import coco
from polyglance.data.readers.base import ReadOptions, find_files, without_gz
from polyglance.errors import Problems
from polyglance.records import Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per image."""
    for path in find_files(source, _is_yj, "a file named yjcaptions26k_clean.json"):
        language = options.language or "ja"
        yield from coco.read_captions(path, language, "train2014", options, problems)


def _is_yj(name: str) -> bool:
    return name.startswith("yjcaptions") and without_gz(name).endswith(".json")
