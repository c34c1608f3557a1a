"""MSCOCO's caption files and image names, which several datasets share.

A caption file is one JSON object:

    {"images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg"}, ...],
     "annotations": [{"id": 1, "image_id": 9, "caption": "..."}, ...]}

Images are published in folders by subset: ``train2014/COCO_train2014_000000000009.jpg``.
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

_SUBSET_IN_IMAGE = re.compile(r"COCO_([a-z]+\d{4})_\d+")
_SUBSET_IN_FILE = re.compile(r"(train|val|test)\d{4}")


def image_path(name: str, subset: str | None = None) -> str:
    """Return an image name with its published folder, if its name or ``subset`` gives one."""
    match = _SUBSET_IN_IMAGE.match(name)
    folder = match[1] if match else subset
    return f"{folder}/{name}" if folder and "/" not in name else name


def image_name(image_id: int, subset: str) -> str:
    """Return MSCOCO's file name of an image id; from 2017 on without the subset."""
    number = f"{image_id:012d}.jpg"
    return number if subset.endswith("2017") else f"COCO_{subset}_{number}"


def subset_in_name(path: Path) -> str | None:
    """Return the subset in a file name: "train2014" for ``captions_train2014.json``."""
    match = _SUBSET_IN_FILE.search(path.name)
    return match[0] if match else None


def read_captions(
    path: Path,
    language: str,
    subset: str | None,
    options: ReadOptions,
    problems: Problems,
    parse_caption: Callable[[dict[str, Any]], str] | None = None,
) -> Iterator[Record]:
    """Yield one record per captioned image of a caption file, in the order of the images.

    Args:
        path: The caption file.
        language: The language of the captions.
        subset: Names images that the file does not name, such as "train2014".
        options: The image folder and the split.
        problems: Collects malformed entries.
        parse_caption: Returns the caption of an annotation; by default its "caption".
    """
    parse_caption = parse_caption or (lambda entry: check_text(entry.get("caption"), "'caption'"))
    document = load_json(path, problems, dict)
    captions: dict[int, list[str]] = {}
    for place, entry in entries(path, document, "annotations", problems):
        with reporting(problems, path, place=place):
            image_id = check_integer(entry.get("image_id"), "'image_id'")
            captions.setdefault(image_id, []).append(parse_caption(entry))
    names: dict[int, str] = {}
    images = document if "images" in document else {}
    for place, entry in entries(path, images, "images", problems):
        with reporting(problems, path, place=place):
            names[check_integer(entry.get("id"), "'id'")] = _file_name(entry)
    unnamed = (key for key in captions if key not in names)
    for image_id in (*(key for key in names if key in captions), *unnamed):
        name = names.get(image_id) or (image_name(image_id, subset) if subset else None)
        if name is None:
            problems.report(path, None, f"expected 'images' to name image {image_id}")
            continue
        yield Record(
            image=options.path(image_path(name, subset)),
            captions={language: tuple(captions[image_id])},
            split=options.split or split_in_name(path),
        )


def _file_name(entry: dict[str, Any]) -> str:
    """Return the image's file name, which some releases give only as the end of its URL."""
    for key in ("file_name", "filename"):
        if key in entry:
            return check_text(entry[key], repr(key))
    for key in ("coco_url", "url"):
        if key in entry:
            return check_text(check_text(entry[key], repr(key)).rsplit("/", 1)[-1], repr(key))
    raise ValueError("'file_name'")
