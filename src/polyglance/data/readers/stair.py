"""STAIR Captions (Yoshikawa et al., 2017): Japanese captions of MSCOCO's 2014 images.

Layout: ``stair_captions_v1.2_train.json`` and ``..._val.json`` in MSCOCO's format
(`polyglance.data.readers.coco`). Annotations may have a ``tokenized_caption`` beside
``caption``, or, in the ``_tokenized`` files, instead of it.
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
    """Yield one record per image."""
    files = find_files(source, _is_stair, "files named stair_captions_v1.2_train.json ...")
    untokenized = [path for path in files if "tokenized" not in path.name]
    for path in untokenized or files:
        split = options.split or split_in_name(path)
        subset = f"{split}2014" if split in ("train", "val") else None
        language = options.language or "ja"
        yield from coco.read_captions(path, language, subset, options, problems, _caption)


def _is_stair(name: str) -> bool:
    return name.startswith("stair_captions") and without_gz(name).endswith(".json")


def _caption(entry: dict[str, Any]) -> str:
    if "caption" not in entry and "tokenized_caption" in entry:
        return check_text(entry["tokenized_caption"], "'tokenized_caption'").replace(" ", "")
    return check_text(entry.get("caption"), "'caption'")
