"""What the service takes from a library: hits by number, names without paths, files to give out.

A hit goes by the number of its vector. Such a number is never used again
(`polyglance.search.store`), says which span of a clip is meant, and tells nothing about
the disk. What people see of a path begins with the name of the folder that was indexed.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from polyglance.encoders import Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.library import Library
from polyglance.search.query import Hit, Piece, as_filter
from polyglance.search.store import Counts, Unreachable
from polyglance.search.walking import is_within
from polyglance.serve.known_pictures import from_text, to_text
from polyglance.serve.problems import Refused

MOST_WALKED = 200_000
"""Files among which sub-folders are counted; of more, only what was indexed is listed."""
MOST_FOLDERS = 500
COUNTED_FOR = 30.0
"""Seconds for which a count stands while others write."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for; pictures are numbers of hits, or what `Shelf.remember` gave."""

    text: str | None = None
    without: Sequence[str] = ()
    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    folders: Sequence[str] = ()
    kind: str | None = None
    since: str | None = None
    until: str | None = None
    language: str | None = None
    every_span: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """How much there is, and the folders as they are told, with their files at any depth."""

    counts: Counts
    folders: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Counted:
    revision: Hashable
    counted: float
    overview: Overview


class Shelf:
    """A library as it is given out. Its methods take time: call them in threads."""

    def __init__(self, library: Library) -> None:
        """The library must exist; its model is opened by `warm_up`."""
        self._library, self.manifest = library, library.manifest
        self._overview: _Counted | None = None

    def warm_up(self) -> None:
        """Open the model and the vectors, so that the first who asks does not wait."""
        self._library.search("a", k=1)

    def search(self, asked: Question, count: int) -> list[Hit]:
        """What fits best, the best first."""
        folders = self._folders(asked.folders)
        try:
            as_filter(None, asked.kind, asked.since, asked.until)
        except PolyglanceError as error:
            raise Refused(422, f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        try:
            return self._library.search(
                asked.text,
                picture=[self._picture(picture) for picture in asked.like],
                without=asked.without,
                without_picture=[self._picture(picture) for picture in asked.unlike],
                k=count,
                folder=folders,
                kind=asked.kind,
                since=asked.since,
                until=asked.until,
                language=asked.language,
                every_span=asked.every_span,
            )
        except (DataError, Unreachable):
            raise
        except PolyglanceError as error:
            raise Refused(422, "The library's model cannot read this query.") from error

    def remember(self, picture: Picture) -> str:
        """A picture as a text that `Question` takes; nothing of it is kept here."""
        return to_text(self._library.vector(picture))

    def found(self, number: int) -> Piece:
        """What goes by a number."""
        there = self._library.piece(number)
        if there is None:
            raise Refused(404, "There is no such picture or clip in the library.")
        return there

    def names(self, pieces: Sequence[Piece]) -> list[tuple[str, str]]:
        """Folder and name of files as they are told: the folder that was indexed, and on."""
        labels = self._labels()
        return [self._name(PurePosixPath(piece.path.as_posix()), labels) for piece in pieces]

    def overview(self) -> Overview:
        """What there is; counted again when something was written, but not all the time."""
        revision, now = self._library.revision, time.monotonic()
        last = self._overview
        if last is None or (last.revision != revision and now - last.counted >= COUNTED_FOR):
            counts = self._library.info().counts
            folders = self._count_folders(counts)
            self._overview = last = _Counted(revision, now, Overview(counts, folders))
        return last.overview

    def open(self, piece: Piece) -> tuple[BinaryIO, os.stat_result]:
        """The file of a hit, if it still lies in a folder that was indexed.

        One that was named by itself, in a manifest, must be there itself: no link leads on.
        """
        path = piece.path.as_posix()
        place = self._place(path, self._labels())
        try:
            real = os.path.realpath(path, strict=True)
            if not is_within(real, path if place is None else os.path.realpath(place)):
                raise PermissionError
            # What is opened is what was looked at: no link, and nothing that would make us wait.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            file = os.fdopen(os.open(real, flags | getattr(os, "O_BINARY", 0)), "rb")
        except OSError:
            raise Refused(404, "The file is not where it was when it was indexed.") from None
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            file.close()
            raise Refused(404, "The file is not where it was when it was indexed.")
        return file, status

    def thumbnail(self, piece: Piece) -> bytes | None:
        """The small WebP that the library keeps of a file, where it does."""
        return self._library.thumbnail(piece)

    def _picture(self, told: str) -> Piece | Vectors:
        return self.found(int(told)) if told.isdecimal() else from_text(told, self.manifest.width)

    def _folders(self, told: Sequence[str]) -> list[str] | None:
        """The folders that are meant; none for all."""
        places = {label: place for place, label in self._labels().items()}
        folders = []
        for one in told:
            label, _, inside = one.partition("/")
            parts = PurePosixPath(inside).parts
            if label not in places or ".." in parts or inside.startswith("/"):
                raise Refused(422, "folder: the library has no such folder.")
            folders.append(str(PurePosixPath(places[label], *parts)))
        return folders or None

    def _labels(self) -> dict[str, str]:
        """The name by which each indexed folder is told."""
        labels: dict[str, str] = {}
        for place in self._library.folders:
            label = name = Path(place).name or "files"
            times = 1
            while label in labels.values():
                times += 1
                label = f"{name} ({times})"
            labels[place] = label
        return labels

    def _name(self, path: PurePosixPath, labels: dict[str, str]) -> tuple[str, str]:
        place = self._place(str(path), labels)
        if place is None or place == str(path):
            return "", path.name
        inside = path.parent.relative_to(place)
        return (PurePosixPath(labels[place]) / inside).as_posix(), path.name

    @staticmethod
    def _place(path: str, labels: dict[str, str]) -> str | None:
        """The indexed folder that a file lies in, the innermost."""
        return max((place for place in labels if is_within(path, place)), key=len, default=None)

    def _count_folders(self, counts: Counts) -> list[tuple[str, int]]:
        labels = self._labels()
        if counts.pictures + counts.clips > MOST_WALKED:
            return [(label, 0) for label in labels.values()]
        files: Counter[str] = Counter()
        for place, label in labels.items():
            for path in self._library.paths(place):
                inside = PurePosixPath(path).relative_to(place)
                files.update((PurePosixPath(label) / part).as_posix() for part in inside.parents)
        most = files.most_common(MOST_FOLDERS)
        return sorted(most, key=lambda folder: folder[0].split("/"))
