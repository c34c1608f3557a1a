"""What the datasets on MSCOCO's pictures share: caption files in its format, and picture names.

    {"images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg"}, ...],
     "annotations": [{"id": 1, "image_id": 9, "caption": "..."}, ...]}

Pictures are published in folders named for their part: ``train2014/COCO_train2014_...jpg``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polyglance.data.readers.base import ReadOptions, split_in_name
from polyglance.data.readers.json_files import entries, load_json
from polyglance.data.readers.validation import check_integer, check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record

_PART_IN_PICTURE = re.compile(r"COCO_([a-z]+\d{4})_\d+")
_PART_IN_FILE = re.compile(r"(train|val|test)\d{4}")


def image_path(name: str, part: str | None = None) -> str:
    """A picture in the folder that it is published in, where its name or the part tells."""
    found = _PART_IN_PICTURE.match(name)
    folder = found[1] if found else part
    return f"{folder}/{name}" if folder and "/" not in name else name


def image_name(image_id: int, part: str) -> str:
    """What MSCOCO calls the picture of an id; from 2017 on without the part."""
    number = f"{image_id:012d}.jpg"
    return number if part.endswith("2017") else f"COCO_{part}_{number}"


def subset_in_name(path: Path) -> str | None:
    """The part of MSCOCO that a file is named for: "train2014" of ``captions_train2014.json``."""
    found = _PART_IN_FILE.search(path.name)
    return found[0] if found else None


def read_captions(
    path: Path,
    language: str,
    part: str | None,
    options: ReadOptions,
    problems: Problems,
    sentence: Callable[[dict[str, Any]], str] | None = None,
) -> Iterator[Record]:
    """Yield a record a picture that has captions, in the order of the pictures.

    A picture that the file does not name is named from its id and ``part``.
    """
    sentence = sentence or (lambda entry: check_text(entry.get("caption"), "'caption'"))
    document = load_json(path, problems, dict)
    captions: dict[int, list[str]] = {}
    for place, entry in entries(path, document, "annotations", problems):
        with reporting(problems, path, place=place):
            image_id = check_integer(entry.get("image_id"), "'image_id'")
            captions.setdefault(image_id, []).append(sentence(entry))
    names: dict[int, str] = {}
    images = document if "images" in document else {}
    for place, entry in entries(path, images, "images", problems):
        with reporting(problems, path, place=place):
            names[check_integer(entry.get("id"), "'id'")] = _file_name(entry)
    unnamed = (key for key in captions if key not in names)
    for image_id in (*(key for key in names if key in captions), *unnamed):
        name = names.get(image_id) or (image_name(image_id, part) if part else None)
        if name is None:
            problems.report(path, None, f"expected 'images' to name picture {image_id}")
            continue
        yield Record(
            image=options.path(image_path(name, part)),
            captions={language: tuple(captions[image_id])},
            split=options.split or split_in_name(path),
        )


def _file_name(entry: dict[str, Any]) -> str:
    """The picture's file, which some releases give only as the end of its address."""
    for key in ("file_name", "filename"):
        if key in entry:
            return check_text(entry[key], repr(key))
    for key in ("coco_url", "url"):
        if key in entry:
            return check_text(check_text(entry[key], repr(key)).rsplit("/", 1)[-1], repr(key))
    raise ValueError("'file_name'")
