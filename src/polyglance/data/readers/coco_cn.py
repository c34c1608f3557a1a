"""COCO-CN (Li et al., 2019): MSCOCO's 2014 pictures with sentences written in Chinese.

``imageid.human-written-caption.txt`` holds a sentence a line, with its picture:

    COCO_train2014_000000000009#0<TAB>sentence

``coco-cn_train.txt``, ``coco-cn_val.txt`` and ``coco-cn_test.txt`` beside it list
the pictures of each split. From a folder the sentences written for the pictures
are read, not the translated nor the segmented ones; give another file of this
layout by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers import coco
from polyglance.data.readers.base import ReadOptions, find_files
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record, read_lines

_CAPTIONS = re.compile(r"imageid\.human(-written)?-caption\.txt(\.gz)?")


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record a picture, in the order of their first sentences."""
    expected = "imageid.human-written-caption.txt"
    for path in find_files(source, lambda name: bool(_CAPTIONS.fullmatch(name)), expected):
        splits = _read_splits(path.parent, problems)
        captions: dict[str, list[str]] = {}
        for number, line in read_lines(path, problems):
            if not line.strip():
                continue
            with reporting(problems, path, number):
                picture, sentence = _parse(line)
                captions.setdefault(picture, []).append(sentence)
        for picture, sentences in captions.items():
            yield Record(
                image=options.path(coco.image_path(f"{picture}.jpg")),
                captions={options.language or "zh": tuple(sentences)},
                split=splits.get(picture, options.split),
            )


def _parse(line: str) -> tuple[str, str]:
    name, *rest = line.split(maxsplit=1)
    picture, mark, _ = name.partition("#")
    if not rest or not mark:
        raise ValueError("'PICTURE#NUMBER<TAB>SENTENCE'")
    return check_text(picture, "the name of a picture"), check_text(rest[0], "a sentence")


def _read_splits(folder: Path, problems: Problems) -> dict[str, str]:
    splits = {}
    for split in ("train", "val", "test"):
        path = folder / f"coco-cn_{split}.txt"
        if path.is_file():
            for _, line in read_lines(path, problems):
                splits[line.strip().removesuffix(".jpg")] = split
    return splits
