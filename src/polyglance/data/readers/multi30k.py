"""What both tasks of Multi30K share: files whose lines belong together by their number.

The sentences of a split are spread over files, the same picture's on the same
line of each; an image list names the pictures in the same order. A COCO picture
is named together with its caption: ``COCO_val2014_000000157771.jpg#2282``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, normalise_split, without_gz
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import DataError, Problems, printable
from polyglance.languages import normalise_language
from polyglance.records import Record, read_lines

LANGUAGE = r"(?P<language>(?!txt|md)[a-z]{2,3})"
"""How a file of sentences ends; image lists end in ``txt``."""


def read_splits(
    source: Path, pattern: re.Pattern[str], expected: str, options: ReadOptions, problems: Problems
) -> Iterator[Record]:
    """Yield a record a picture from the files whose names fit a pattern of split and language."""
    if not source.is_dir():
        raise DataError(f"{printable(str(source))}: expected the folder with {expected}")
    folder = source / "raw" if (source / "raw").is_dir() else source
    found = find_files(folder, lambda name: bool(pattern.fullmatch(without_gz(name))), expected)
    splits: dict[str, dict[Path, str]] = {}
    # Where both train.en and train.en.gz are there, the first is enough.
    for name, path in {without_gz(path.name): path for path in reversed(found)}.items():
        fit = pattern.fullmatch(name)
        assert fit is not None
        splits.setdefault(fit["split"], {})[path] = normalise_language(fit["language"])
    for split in sorted(splits):
        languages = dict(sorted(splits[split].items()))
        yield from _read_split(folder, split, languages, options, problems)


def _read_split(
    folder: Path, split: str, languages: dict[Path, str], options: ReadOptions, problems: Problems
) -> Iterator[Record]:
    images = _find_image_list(folder, split)
    if images is None:
        problems.report(folder, None, f"expected {split}.txt with the names of the pictures")
    paths = [*languages, *([images] if images else [])]
    for number, lines in _read_in_parallel(paths, problems):
        picture = lines.pop(images, None) if images else None
        captions: dict[str, tuple[str, ...]] = {}
        for path, line in lines.items():
            with reporting(problems, path, number):
                language = languages[path]
                captions[language] = (*captions.get(language, ()), check_text(line, "a sentence"))
        if images is None:
            if captions:
                yield Record(captions=captions, split=normalise_split(split))
        elif picture is not None:
            with reporting(problems, images, number):
                name, _, caption = check_text(picture, "the name of a picture").partition("#")
                yield Record(
                    image=options.path(check_text(name, "the name of a picture")),
                    captions=captions,
                    split=normalise_split(split),
                    id=f"{name}#{caption}" if caption else None,
                )


def _read_in_parallel(
    paths: list[Path], problems: Problems
) -> Iterator[tuple[int, dict[Path, str]]]:
    """Yield each line number with the line of every file that has one there.

    A line that cannot be read is missing in its file alone, so that the others
    stay aligned. A file that ends before the rest is reported once.
    """
    streams = {path: read_lines(path, problems) for path in paths}
    heads = {path: next(stream, None) for path, stream in streams.items()}
    ended: set[Path] = set()
    while present := [head[0] for head in heads.values() if head is not None]:
        number = min(present)
        lines = {}
        for path, head in heads.items():
            if head is None:
                if path not in ended:
                    ended.add(path)
                    problems.report(path, number, "expected as many lines as its companions have")
            elif head[0] == number:
                lines[path] = head[1]
                heads[path] = next(streams[path], None)
        yield number, lines


def _find_image_list(folder: Path, split: str) -> Path | None:
    """The file that names a split's pictures, one a line, where the releases put it."""
    names = (f"{split}.txt", f"{split}_images.txt", f"split_{split}.txt")
    places = (folder, folder / "image_splits", folder.parent / "image_splits")
    candidates = (place / name for place in places for name in names)
    return next((path for path in candidates if path.is_file()), None)
