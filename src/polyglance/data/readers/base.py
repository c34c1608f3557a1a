"""What readers share: their options, and splits and languages from file names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.languages import is_language_code, normalise_language


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a dataset's files do not say."""

    images: str = ""
    """The folder of the pictures or videos, put before their names."""
    language: str | None = None
    """The language of texts whose files name none, in place of the dataset's default."""
    split: str | None = None
    """The split of records whose files name none."""
    extension: str = ".mp4"
    """The extension of video files that a dataset names by id; empty for bare ids."""
    untrimmed: bool = False
    """Whether the videos are whole uploads, of which the dataset's clips are spans."""
    flat: bool = False
    """Whether all pictures are in one folder instead of the published subfolders."""
    unpack: str | None = None
    """Folder that pictures inside the files of a format are written to; None to leave them."""

    def __post_init__(self) -> None:
        if self.extension and not self.extension.startswith("."):
            object.__setattr__(self, "extension", f".{self.extension}")
        if self.language is not None:
            try:
                object.__setattr__(self, "language", normalise_language(self.language))
            except ValueError as error:
                raise PolyglanceError(f"language: expected {error}") from None

    def path(self, name: str) -> str:
        """Return the path of a picture or video by its published name."""
        if self.flat:
            name = name.rsplit("/", 1)[-1] or name
        if not self.images or name.startswith("/") or "://" in name:
            return name
        return f"{self.images.rstrip('/')}/{name}"

    def video_path(self, name: str) -> str:
        """Return the path of the video of this id."""
        return self.path(name + self.extension)


def find_files(source: Path, matches: Callable[[str], bool], expected: str) -> list[Path]:
    """Return the source if it is a file, else the matching files in it; none is an error.

    Args:
        source: A file or a folder.
        matches: Whether a file name belongs to the dataset.
        expected: What the error says was expected.
    """
    if source.is_file():
        return [source]
    # Skip hidden files, such as the "._name" files of macOS archives.
    names = sorted(path.name for path in source.iterdir() if not path.name.startswith("."))
    files = [source / name for name in names if matches(name) and (source / name).is_file()]
    if not files:
        raise DataError(f"{printable(str(source))}: expected {expected}")
    return files


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
    """Return the standard name of a split: "val" for "validation"; other names stay."""
    return _SPLITS.get(name.lower(), name)


def split_in_name(path: PurePath) -> str | None:
    """Return the split in a file name: "train" for ``captions_train2014.json``."""
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def language_in_name(name: str) -> str | None:
    """Return the language in a file name, its last part that is a code: ``wiki.de.txt``."""
    words = reversed(re.split(r"[._]+", name))
    return next((normalise_language(word) for word in words if is_language_code(word)), None)


def without_gz(name: str) -> str:
    """Return a file name without ``.gz``."""
    return name.removesuffix(".gz")
