"""COCO-CN (Li et al., 2019): Chinese captions of MSCOCO's 2014 images.

Layout: ``imageid.human-written-caption.txt`` has one caption per line, with its image:

    COCO_train2014_000000000009#0<TAB>sentence

``coco-cn_train.txt``, ``coco-cn_val.txt`` and ``coco-cn_test.txt`` beside it list the images
of each split. From a folder only the human-written captions are read, neither the translated
nor the segmented ones; to read another file of this layout, name it.
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
    """Yield one record per image, in the order of their first captions."""
    expected = "imageid.human-written-caption.txt"
    for path in find_files(source, lambda name: bool(_CAPTIONS.fullmatch(name)), expected):
        splits = _read_splits(path.parent, problems)
        captions: dict[str, list[str]] = {}
        for number, line in read_lines(path, problems):
            if not line.strip():
                continue
            with reporting(problems, path, number):
                image, caption = _parse(line)
                captions.setdefault(image, []).append(caption)
        for image, texts in captions.items():
            yield Record(
                image=options.path(coco.image_path(f"{image}.jpg")),
                captions={options.language or "zh": tuple(texts)},
                split=splits.get(image, options.split),
            )


def _parse(line: str) -> tuple[str, str]:
    name, *rest = line.split(maxsplit=1)
    image, separator, _ = name.partition("#")
    if not rest or not separator:
        raise ValueError("'IMAGE#NUMBER<TAB>CAPTION'")
    return check_text(image, "an image name"), check_text(rest[0], "a caption")


def _read_splits(folder: Path, problems: Problems) -> dict[str, str]:
    splits = {}
    for split in ("train", "val", "test"):
        path = folder / f"coco-cn_{split}.txt"
        if path.is_file():
            for _, line in read_lines(path, problems):
                splits[line.strip().removesuffix(".jpg")] = split
    return splits
