"""STAIR Captions (Yoshikawa et al., 2017): MSCOCO's 2014 pictures in Japanese.

The format is MSCOCO's; annotations may carry a ``tokenized_caption`` beside
``caption``, or, in the ``_tokenized`` files, in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyglance.data.readers import coco
from polyglance.data.readers.base import ReadOptions, find_files, split_in_name, without_gz
from polyglance.data.readers.validation import check_text
from polyglance.errors import Problems
from polyglance.records import Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record a picture."""
    files = find_files(source, _is_stair, "files named stair_captions_v1.2_train.json ...")
    untokenized = [path for path in files if "tokenized" not in path.name]
    for path in untokenized or files:
        split = options.split or split_in_name(path)
        part = f"{split}2014" if split in ("train", "val") else None
        language = options.language or "ja"
        yield from coco.read_captions(path, language, part, options, problems, _sentence)


def _is_stair(name: str) -> bool:
    return name.startswith("stair_captions") and without_gz(name).endswith(".json")


def _sentence(entry: dict[str, Any]) -> str:
    if "caption" not in entry and "tokenized_caption" in entry:
        return check_text(entry["tokenized_caption"], "'tokenized_caption'").replace(" ", "")
    return check_text(entry.get("caption"), "'caption'")
