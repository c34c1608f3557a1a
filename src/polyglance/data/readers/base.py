"""What every reader is given, and what it may assume of names on disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.languages import is_language_code, normalise_language


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the files themselves do not say."""

    images: str = ""
    """Put before the name of every picture or video: the folder that they are in."""
    language: str | None = None
    """The language of texts whose files name none, instead of the dataset's own."""
    split: str | None = None
    """The split of records whose files name none."""
    extension: str = ".mp4"
    """How the video files of a dataset end that names its videos by id; empty for bare ids."""
    untrimmed: bool = False
    """The videos are whole uploads, not the dataset's clips: a clip is then a span of one."""
    flat: bool = False
    """All pictures lie in one folder, not in those that the dataset is published with."""

    def __post_init__(self) -> None:
        if self.extension and not self.extension.startswith("."):
            object.__setattr__(self, "extension", f".{self.extension}")
        if self.language is not None:
            try:
                object.__setattr__(self, "language", normalise_language(self.language))
            except ValueError as error:
                raise PolyglanceError(f"language: expected {error}") from None

    def path(self, name: str) -> str:
        """Where a picture or video of this published name is."""
        if self.flat:
            name = name.rsplit("/", 1)[-1] or name
        if not self.images or name.startswith("/") or "://" in name:
            return name
        return f"{self.images.rstrip('/')}/{name}"

    def video_path(self, name: str) -> str:
        """Where the video of this id is."""
        return self.path(name + self.extension)


def find_files(source: Path, wanted: Callable[[str], bool], expected: str) -> list[Path]:
    """The source itself if it is a file, else the wanted files in it; none is an error."""
    if source.is_file():
        return [source]
    # "._name" is what macOS leaves in archives; hidden files are nobody's data.
    names = sorted(path.name for path in source.iterdir() if not path.name.startswith("."))
    found = [source / name for name in names if wanted(name) and (source / name).is_file()]
    if not found:
        raise DataError(f"{printable(str(source))}: expected {expected}")
    return found


_SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


def normalise_split(name: str) -> str:
    """One name a split: "validate" and "validation" are "val"; other names stay."""
    return _SPLITS.get(name.lower(), name)


def split_in_name(path: Path) -> str | None:
    """The split that a file is named for: ``captions_train2014.json`` is "train"."""
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def language_in_name(name: str) -> str | None:
    """The language that a file is named for, in its last word that is a code: ``wiki.de.txt``."""
    words = reversed(re.split(r"[._]+", name))
    return next((normalise_language(word) for word in words if is_language_code(word)), None)


def without_gz(name: str) -> str:
    """A file's name as it is once unzipped."""
    return name.removesuffix(".gz")
