"""The layout that both tasks of Multi30K share: parallel files by line number.

The captions of a split are in several files, those of one image on the same line of each; an
image list names the images in the same order. COCO images are named together with a caption:
``COCO_val2014_000000157771.jpg#2282``.
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
"""The extension of a caption file; image lists end in ``txt``."""


def read_splits(
    source: Path, pattern: re.Pattern[str], expected: str, options: ReadOptions, problems: Problems
) -> Iterator[Record]:
    """Yield one record per image from the files that match ``pattern``.

    Args:
        source: The folder.
        pattern: Matches file names, with the groups ``split`` and ``language``.
        expected: What the error for a missing file says was expected.
        options: The image folder.
        problems: Collects malformed lines.
    """
    if not source.is_dir():
        raise DataError(f"{printable(str(source))}: expected the folder with {expected}")
    folder = source / "raw" if (source / "raw").is_dir() else source
    files = find_files(folder, lambda name: bool(pattern.fullmatch(without_gz(name))), expected)
    splits: dict[str, dict[Path, str]] = {}
    # Of train.en and train.en.gz only the first is read.
    for name, path in {without_gz(path.name): path for path in reversed(files)}.items():
        match = pattern.fullmatch(name)
        assert match is not None
        splits.setdefault(match["split"], {})[path] = normalise_language(match["language"])
    for split in sorted(splits):
        languages = dict(sorted(splits[split].items()))
        yield from _read_split(folder, split, languages, options, problems)


def _read_split(
    folder: Path, split: str, languages: dict[Path, str], options: ReadOptions, problems: Problems
) -> Iterator[Record]:
    images = _find_image_list(folder, split)
    if images is None:
        problems.report(folder, None, f"expected {split}.txt with the names of the images")
    paths = [*languages, *([images] if images else [])]
    for number, lines in _read_in_parallel(paths, problems):
        image = lines.pop(images, None) if images else None
        captions: dict[str, tuple[str, ...]] = {}
        for path, line in lines.items():
            with reporting(problems, path, number):
                language = languages[path]
                captions[language] = (*captions.get(language, ()), check_text(line, "a sentence"))
        if images is None:
            if captions:
                yield Record(captions=captions, split=normalise_split(split))
        elif image is not None:
            with reporting(problems, images, number):
                name, _, caption = check_text(image, "an image name").partition("#")
                yield Record(
                    image=options.path(check_text(name, "an image name")),
                    captions=captions,
                    split=normalise_split(split),
                    id=f"{name}#{caption}" if caption else None,
                )


def _read_in_parallel(
    paths: list[Path], problems: Problems
) -> Iterator[tuple[int, dict[Path, str]]]:
    """Yield each line number with the lines of all files that have one.

    A line that cannot be read is missing from its own file only, so that the others stay
    aligned. A file that ends before the others is reported once.
    """
    streams = {path: read_lines(path, problems) for path in paths}
    current = {path: next(stream, None) for path, stream in streams.items()}
    ended: set[Path] = set()
    while present := [head[0] for head in current.values() if head is not None]:
        number = min(present)
        lines = {}
        for path, head in current.items():
            if head is None:
                if path not in ended:
                    ended.add(path)
                    problems.report(path, number, "expected as many lines as the other files")
            elif head[0] == number:
                lines[path] = head[1]
                current[path] = next(streams[path], None)
        yield number, lines


def _find_image_list(folder: Path, split: str) -> Path | None:
    """Return the file that names a split's images, one per line, where the releases put it."""
    names = (f"{split}.txt", f"{split}_images.txt", f"split_{split}.txt")
    places = (folder, folder / "image_splits", folder.parent / "image_splits")
    candidates = (place / name for place in places for name in names)
    return next((path for path in candidates if path.is_file()), None)
