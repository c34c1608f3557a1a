"""What the service takes from a library: hits by number, names without paths, files to give out.

A hit goes by the number of its vector. Such a number is never used again
(`polyglance.search.store`), says which span of a clip is meant, and tells nothing about
the disk. What people see of a path begins with the name of the folder that was indexed.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from polyglance.encoders import Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.search.query import as_filter, query_vector
from polyglance.search.store import Counts, Filter, Item, Manifest, Span
from polyglance.search.walking import is_within
from polyglance.serve.known_pictures import WithKnownPictures, from_text, to_text
from polyglance.serve.problems import Refused

MOST_WALKED = 200_000
"""Files among which sub-folders are counted; of more, only what was indexed is listed."""
MOST_FOLDERS = 500


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
class Found:
    """An item of the library, and the span of it, that goes by a number."""

    number: int
    item: Item
    span: Span | None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """How much there is, and the folders as they are told, with their files at any depth."""

    counts: Counts
    folders: list[tuple[str, int]]


class Shelf:
    """A library as it is given out. Its methods take time: call them in threads."""

    def __init__(self, library: Library) -> None:
        """The library must exist; its model is opened by `warm_up`."""
        self._library, self._store = library, library._store()
        self._overview: tuple[Hashable, Overview] | None = None

    @property
    def manifest(self) -> Manifest:
        """Which model answers."""
        return self._store.manifest

    def warm_up(self) -> None:
        """Open the model and the vectors, so that the first who asks does not wait."""
        self._library.search("a", k=1)

    def search(self, asked: Question, count: int) -> list[Found]:
        """What fits best, the best first."""
        wanted = self._filter(asked)
        vector = self._vector(asked)
        with self._library._lock:
            index = self._library._index(self._store)
            nearest = index.nearest(vector, count, wanted, once=not asked.every_span)
        found = self._store.found(nearest.ids.tolist())
        scored = zip(nearest.ids.tolist(), nearest.scores.tolist(), strict=True)
        return [Found(number, *found[number], score) for number, score in scored if number in found]

    def remember(self, picture: Picture) -> str:
        """A picture as a text that `Question` takes; nothing of it is kept here."""
        return to_text(self._library._encoder().encode_pictures([picture])[0])

    def found(self, number: int) -> Found:
        """What goes by a number."""
        there = self._store.found([number]).get(number)
        if there is None:
            raise Refused(404, "There is no such picture or clip in the library.")
        return Found(number, *there)

    def name(self, item: Item) -> tuple[str, str]:
        """Folder and name of a file as they are told: the folder that was indexed, and on."""
        labels = self._labels()
        place = self._place(item.path, labels)
        path = PurePosixPath(item.path)
        if place is None or place == item.path:
            return "", path.name
        inside = path.parent.relative_to(place)
        return (PurePosixPath(labels[place]) / inside).as_posix(), path.name

    def overview(self) -> Overview:
        """What there is; it is counted again when something was written."""
        revision = self._store.revision()
        if self._overview is None or self._overview[0] != revision:
            counts = self._store.counts()
            self._overview = revision, Overview(counts, self._count_folders(counts))
        return self._overview[1]

    def open(self, found: Found) -> tuple[BinaryIO, os.stat_result]:
        """The file of an item, if it still lies in a folder that was indexed."""
        place = self._place(found.item.path, self._labels())
        try:
            if place is None:
                raise PermissionError
            real = os.path.realpath(found.item.path, strict=True)
            if not is_within(real, os.path.realpath(place)):
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

    def thumbnail(self, found: Found) -> bytes | None:
        """The small WebP that the library keeps of an item, where it does."""
        return self._store.thumbnail(found.item.path)

    def _vector(self, asked: Question) -> Vectors:
        encoder = WithKnownPictures(self._library._encoder())
        like: list[Any] = [self._known(picture) for picture in asked.like]
        unlike: list[Any] = [self._known(picture) for picture in asked.unlike]
        try:
            return query_vector(
                encoder,
                [] if asked.text is None else [asked.text],
                like,
                without=asked.without,
                without_pictures=unlike,
                language=asked.language,
            )
        except PolyglanceError as error:
            raise Refused(422, "The library's model cannot read this query.") from error

    def _known(self, picture: str) -> Vectors:
        if not picture.isdecimal():
            return from_text(picture, self.manifest.width)
        rows = self._store.rows(np.array([int(picture)], np.int64))
        if not len(rows):
            raise Refused(404, "There is no such picture or clip in the library.")
        vector: Vectors = rows.vectors[0]
        return vector

    def _filter(self, asked: Question) -> Filter:
        places = {label: place for place, label in self._labels().items()}
        folders = []
        for told in asked.folders:
            label, _, inside = told.partition("/")
            parts = PurePosixPath(inside).parts
            if label not in places or ".." in parts or inside.startswith("/"):
                raise Refused(422, "folder: the library has no such folder.")
            folders.append(str(PurePosixPath(places[label], *parts)))
        try:
            rest = as_filter(None, asked.kind, asked.since, asked.until)
        except PolyglanceError as error:
            raise Refused(422, f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        return Filter(tuple(folders) or None, rest.kind, rest.since, rest.until)

    def _labels(self) -> dict[str, str]:
        """The name by which each indexed folder is told."""
        labels: dict[str, str] = {}
        for place in self._store.places("walked"):
            label = name = Path(place).name or "files"
            times = 1
            while label in labels.values():
                times += 1
                label = f"{name} ({times})"
            labels[place] = label
        return labels

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
            for path in self._store.paths(place):
                inside = PurePosixPath(path).relative_to(place)
                files.update((PurePosixPath(label) / part).as_posix() for part in inside.parents)
        most = files.most_common(MOST_FOLDERS)
        return sorted(most, key=lambda folder: folder[0].split("/"))
