"""What a library keeps, and what any place that keeps it must be able to do.

A library is items (files), the vectors of each (one of a picture, one a span of a
clip) and a manifest that says which model made them. `polyglance.search.sqlite_store`
keeps it in one file; whatever else implements `Store` can take its place.

Two promises make the rest simple. The number of a vector is never used again, and a
vector never changes: a file that changed gets new numbers. So what was read once stays
true, and what is new has higher numbers. And a write is whole or absent, and may be
repeated: several writers need no other agreement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError

Kind = Literal["picture", "clip"]
Role = Literal["walked", "left out"]
"""Of a folder that is looked into for files, or of what is passed over there."""
Span: TypeAlias = tuple[float, float]
"""From when to when, in seconds of a clip."""
Ids: TypeAlias = NDArray[np.int64]

FORMAT = 1
"""Of what is kept; raised when older code could not read a newer library."""


class NoLibrary(PolyglanceError):  # noqa: N818 (it reads as what it says)
    """There is nothing at the place of a library, or it is not made yet."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place}: there is no library here; `polyglance index FOLDER --library {place}`"
            " makes one"
        )


class Unreachable(PolyglanceError):  # noqa: N818 (it reads as what it says)
    """The place of a library does not answer; it may do so later."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which model the vectors are of: others cannot be compared with them."""

    model: str
    source: str
    """What opens the model again: its name, or its folder."""
    fingerprint: str
    """Of the model's content."""
    width: int
    """Numbers in a vector."""
    library: str
    """A random name, by which files beside the library know that they belong to it."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Stamp:
    """By which a file is taken to be unchanged without reading it."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Item:
    """A picture or clip."""

    path: str
    """Absolute, with ``/``."""
    kind: Kind
    stamp: Stamp
    content: str
    """Hash of the file's bytes, by which it is known again after a move."""
    taken: str
    """When, as ``2024-07-31T18:05:00``, in the time of the place."""
    width: int
    height: int
    seconds: float | None = None
    """How long a clip is."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An item with its vectors: one of a picture, one for each of the ``spans`` of a clip."""

    item: Item
    vectors: NDArray[np.floating]
    spans: tuple[Span, ...] = ()
    thumbnail: bytes | None = None
    """A small WebP."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is on record of a file."""

    stamp: Stamp
    bad: str | None = None
    """Why it could not be read, where it could not."""
    thumbnail: bool = False


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that could not be read, and why. Without a stamp it is not kept on record."""

    path: str
    reason: str
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Vectors with their numbers and those of the items they belong to, in rising order."""

    ids: Ids
    items: Ids
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which items are asked for; None does not restrict."""

    folders: tuple[str, ...] | None = None
    """Lying in one of these, at any depth."""
    kind: Kind | None = None
    since: str | None = None
    """Taken then or later: the beginning of a date, as ``2024`` or ``2024-07-31``."""
    until: str | None = None
    """Taken then or earlier; all of the year, month or day that is named."""

    def __bool__(self) -> bool:
        return self != Filter()


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is."""

    pictures: int
    clips: int
    vectors: int
    thumbnails: int
    bad: int


class Store(Protocol):
    """Where a library is kept. Each method that writes is one transaction."""

    @property
    def manifest(self) -> Manifest:
        """Which model the vectors are of."""

    def revision(self) -> Hashable:
        """A value that is another one when anything may have been written since, by anybody."""

    def known(self, paths: Sequence[str]) -> dict[str, Known]:
        """What is on record of these files; those of which nothing is are left out."""

    def holding(self, content: str) -> list[Item]:
        """Items whose files had this content, no more than a few dozen."""

    def entry(self, path: str) -> Entry | None:
        """An item with its vectors."""

    def entries(self) -> Iterator[Entry]:
        """All items with their vectors, in the order of their paths."""

    def put(self, entries: Iterable[Entry]) -> None:
        """Keep items; what was on record of their paths is replaced where it differs."""

    def put_bad(self, files: Iterable[BadFile]) -> None:
        """Note files that cannot be read, instead of what was on record of them."""

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Keep a thumbnail of an item."""

    def touch(self, path: str, stamp: Stamp) -> None:
        """Note that a file has another stamp and the same content."""

    def move(self, old: str, new: str, stamp: Stamp) -> None:
        """Note that an item's file has another path; its vectors stay."""

    def forget(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; how many items that were."""

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Files on record, bad ones included, in order; only those in a folder, or it itself."""

    def bad(self, folder: str | None = None) -> list[BadFile]:
        """Files that could not be read; only those in a folder, or it itself."""

    def places(self, role: Role) -> list[str]:
        """Folders that are walked when the library is brought up to date, or what is left out."""

    def add_place(self, role: Role, path: str) -> None:
        """Walk a folder from now on, or leave a file or folder out."""

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Walk these folders no more, or leave them out no more."""

    def ids(self, after: int = 0) -> Ids:
        """The numbers of all vectors, rising; only those that are higher than one."""

    def vector_counts(self, number: int) -> tuple[int, int]:
        """How many vectors have numbers up to this one, and how many higher ones."""

    def rows_after(self, number: int) -> Iterator[Rows]:
        """The vectors with higher numbers, in blocks."""

    def rows(self, ids: Ids) -> Rows:
        """The vectors with these numbers, in rising order; those that are gone are left out."""

    def matching(self, wanted: Filter, among: Ids | None = None) -> Ids:
        """The numbers of the vectors of matching items, rising; only of those among some."""

    def found(self, ids: Sequence[int]) -> dict[int, tuple[Item, Span | None]]:
        """The items that vectors belong to, and the spans of those of clips."""

    def thumbnail(self, path: str) -> bytes | None:
        """A small WebP of an item, where there is one."""

    def counts(self) -> Counts:
        """How much there is."""

    def damage(self) -> Iterator[str]:
        """A sentence for each thing that is not as it was written."""

    def close(self) -> None:
        """Let go of it."""
