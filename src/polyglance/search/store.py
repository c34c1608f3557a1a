"""What a library holds, and the `Store` protocol: what any place that keeps it must do.

A library is items (files), their vectors (one per picture, one per span of a clip) and the
`ModelInfo` of the model that made them. `polyglance.search.sqlite_store` keeps it in one file,
`polyglance.search.postgres.store` on a server; any other `Store` can take their place.

Two guarantees simplify the rest. A vector's id is never reused and a vector never changes: a
file that changed gets new ids. So whatever was read stays valid, and new vectors have higher
ids. And a write is atomic and may be repeated: concurrent writers need no other agreement.
"""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.search.default_place import default_library

Kind = Literal["picture", "clip"]
Role = Literal["walked", "left out", "mounted", "last scan", "setting"]
"""What `update` does with a path: scan it for files, skip it, or keep its files when it is away;
or when it was last scanned (see `polyglance.search.scan.format_scan_time`). A setting is no path
but the name of what the library does, as `READ_TEXTS`."""
SCANNED: Final = "walked"
EXCLUDED: Final = "left out"
MOUNTED: Final = "mounted"
LAST_SCAN: Final = "last scan"
SETTING: Final = "setting"
READ_TEXTS: Final = "ocr"
"""The setting of a library whose pictures' texts are read when it is indexed."""
Span: TypeAlias = tuple[float, float]
"""Start and end of a part of a clip, in seconds."""
Ids: TypeAlias = NDArray[np.int64]

FORMAT = 3
"""Version of the stored format; raised when older code could not read a newer library."""


class LibraryNotFoundError(PolyglanceError):
    """There is no library at the given place."""

    def __init__(self, place: str) -> None:
        option = "" if place == str(default_library()) else f" --library {shlex.quote(place)}"
        super().__init__(
            f"{place}: there is no library here; `polyglance index FOLDER{option}` creates one"
        )


class LibraryDamagedError(DataError):
    """A part of a library is not what was written there."""

    def __init__(self, library: str | None, what: str) -> None:
        option = f" --library {shlex.quote(library)}" if library else ""
        super().__init__(
            f"{library or 'the library'} is damaged ({what}): `polyglance library repair{option}`"
            " keeps what can be read and indexes the rest again"
        )


class LibraryUnavailableError(PolyglanceError):
    """The server of a library does not answer; it may do so later."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that made a library's vectors; vectors of others cannot be compared with them."""

    model: str
    """Its name."""
    source: str
    """What opens the model again: its name or its folder."""
    fingerprint: str
    """Hash of the model's content."""
    width: int
    """Numbers per vector."""
    library: str
    """Random id of the library, which ties files beside it to it."""
    format: int = FORMAT


class FileSignature(NamedTuple):
    """Size and modification time: a file with the same signature is taken to be unchanged."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Item:
    """A picture or clip."""

    path: str
    """Absolute, with ``/``."""
    kind: Kind
    signature: FileSignature
    content_hash: str
    """Hash of the file's bytes, which identifies it after a move."""
    taken: str
    """Local time of recording, as ``2024-07-31T18:05:00``."""
    width: int
    height: int
    seconds: float | None = None
    """Duration of a clip."""


@dataclass(frozen=True, slots=True)
class Details:
    """What else is known of an item; None where it is not known.

    An item without a row of details was stored by an earlier version, which read none.
    """

    added: str | None = None
    """When the item was stored, in UTC, as ``2024-07-31T16:05:00+00:00``; `Store.put` sets it."""
    latitude: float | None = None
    longitude: float | None = None
    """Where it was taken, in degrees (WGS 84)."""
    camera: str | None = None
    """Maker and model."""
    place: str | None = None
    """The name of the place, for display and as a filter."""
    ocr_text: str | None = None
    """Text inside the picture; empty if it was looked for and there is none."""
    extra: str | None = None
    """A JSON object of whatever else is worth keeping."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An item with its vectors: one for a picture, one per span for a clip."""

    item: Item
    vectors: NDArray[np.floating]
    """``[1, width]`` for a picture, ``[len(spans), width]`` for a clip."""
    spans: tuple[Span, ...] = ()
    thumbnail: bytes | None = None
    """A small WebP image."""
    details: Details | None = None


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What is on record of a file."""

    signature: FileSignature
    error: str | None = None
    """Why it could not be read, or None."""
    thumbnail: bool = False
    """Whether a thumbnail is stored."""


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that could not be read, and why; without a signature it is not stored."""

    path: str
    reason: str
    signature: FileSignature | None = None


@dataclass(frozen=True, slots=True, eq=False)
class VectorRows:
    """Vectors with their ids and the ids of their items, by rising id."""

    ids: Ids
    """``[n]``."""
    items: Ids
    """``[n]``."""
    vectors: NDArray[np.float32]
    """``[n, width]``."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on items; None does not restrict."""

    folders: tuple[str, ...] | None = None
    """In one of these folders, at any depth."""
    kind: Kind | None = None
    since: str | None = None
    """Taken then or later: a date or the beginning of one, as ``2024`` or ``2024-07-31``."""
    until: str | None = None
    """Taken then or earlier; includes all of the given year, month or day."""
    cameras: tuple[str, ...] | None = None
    """Taken with one of these; `Details.camera`."""
    places: tuple[str, ...] | None = None
    """Taken at one of these; `Details.place`."""
    periods: tuple[tuple[str, str], ...] | None = None
    """Taken in one of these: first and last date each, or the beginnings of dates."""

    def __bool__(self) -> bool:
        return self != Filter()


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a library holds."""

    pictures: int
    clips: int
    vectors: int
    thumbnails: int
    bad: int
    """Files that could not be read."""


@dataclass(frozen=True, slots=True)
class LibraryInfo:
    """What a library is and how much it holds."""

    name: str
    """Its file, or the address of its database without the password."""
    size: int
    """Bytes on disk."""
    model_info: ModelInfo
    counts: Counts
    folders: tuple[str, ...]
    excluded: tuple[str, ...]
    """Files and folders that were removed, which `update` skips."""


BucketUnit: TypeAlias = Literal["year", "month", "day"]
Facet: TypeAlias = Literal["camera", "place"]


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many items were taken in a year, a month or a day."""

    date: str
    """As ``2024``, ``2024-07`` or ``2024-07-31``."""
    count: int


class Store(Protocol):
    """Where a library is kept. Each method that writes is one transaction."""

    @property
    def model_info(self) -> ModelInfo:
        """The model that made the vectors."""

    def revision(self) -> Hashable:
        """Return a value that changes when anything may have been written, by anybody."""

    def records(self, paths: Sequence[str]) -> dict[str, FileRecord]:
        """Return what is on record of these files, by path; unknown files are left out."""

    def items_with_content(self, content_hash: str) -> list[Item]:
        """Return items whose files had this content, a few dozen at most."""

    def entry(self, path: str) -> Entry | None:
        """Return an item with its vectors."""

    def entries(self) -> Iterator[Entry]:
        """Yield all items with their vectors, ordered by path."""

    def items_after(self, path: str, limit: int, *, offset: int = 0) -> list[tuple[int, Item]]:
        """Return items after a path, by path, each with the id of its first vector."""

    def item_at(self, path: str) -> tuple[int, Item] | None:
        """Return the item of a file with the id of its first vector; None if there is none."""

    def put(self, entries: Iterable[Entry]) -> None:
        """Store items; what is on record of their paths is replaced where it differs."""

    def put_bad_files(self, files: Iterable[BadFile]) -> None:
        """Record files that cannot be read, replacing what was on record of them."""

    def put_thumbnail(self, path: str, thumbnail: bytes) -> None:
        """Store the thumbnail of an item."""

    def update_signature(self, path: str, signature: FileSignature) -> None:
        """Record a new signature of a file whose content is unchanged."""

    def move(self, old: str, new: str, signature: FileSignature) -> None:
        """Record that an item's file has a new path; its vectors stay."""

    def delete(self, paths: Iterable[str]) -> int:
        """Delete what is on record of these files; return how many items were deleted."""

    def paths(self, folder: str | None = None) -> Iterator[str]:
        """Yield the paths on record in order, bad files included; all, or those in a folder."""

    def bad_files(self, folder: str | None = None) -> list[BadFile]:
        """Return the files that could not be read; all, or those in a folder."""

    def places(self, role: Role) -> list[str]:
        """Return the paths that have a role."""

    def add_place(self, role: Role, path: str) -> None:
        """Give a path a role."""

    def drop_places(self, role: Role, paths: Iterable[str]) -> None:
        """Take a role from these paths."""

    def ids(self, after: int = 0) -> Ids:
        """Return the rising ids of all vectors, or of those after an id."""

    def vector_counts(self, last_id: int) -> tuple[int, int]:
        """Count the vectors with ids up to this one, and those with higher ids."""

    def rows_after(self, last_id: int) -> Iterator[VectorRows]:
        """Yield the vectors with higher ids, in blocks."""

    def rows(self, ids: Ids) -> VectorRows:
        """Return the vectors with these ids, by rising id; deleted ones are left out."""

    def ids_of_items(self, items: Ids) -> Ids:
        """Return the rising ids of the vectors of these items."""

    def matching_ids(self, where: Filter, among: Ids | None = None) -> Ids:
        """Return the rising ids of vectors whose items match; all, or only those among some."""

    def lookup(self, ids: Sequence[int]) -> dict[int, tuple[Item, Span | None]]:
        """Return the item of each vector, and its span if it is part of a clip."""

    def thumbnail(self, path: str) -> bytes | None:
        """Return the thumbnail of an item (WebP), if there is one."""

    def details(self, paths: Sequence[str]) -> dict[str, Details]:
        """Return the details of these items, by path; items without any are left out."""

    def all_details(self) -> Iterator[tuple[int, str, Details]]:
        """Yield id, path and details of all items that have some, by rising id."""

    def put_details(self, details: Mapping[str, Details]) -> None:
        """Replace the details of items, by path; paths that are not on record are skipped.

        When an item was added stays as it is.
        """

    def timeline(self) -> Ids:
        """Return the ids of all items, the newest first."""

    def shapes(self) -> tuple[Ids, Ids]:
        """Return widths and heights of all items, in the order of `timeline`."""

    def item_ids(self, where: Filter) -> Ids:
        """Return the ids of the items that match, in any order; of all without conditions."""

    def buckets(self, unit: BucketUnit) -> list[Bucket]:
        """Count the items of each year, month or day that has some, the newest first."""

    def hours_added(self) -> list[tuple[str, int]]:
        """Return the hours (UTC) in which items were added, the last first, with lowest ids."""

    def media_ids(self, items: Sequence[int]) -> dict[int, int]:
        """Return the id of the first vector of each item, by the item's id."""

    def item_of(self, media_id: int) -> int | None:
        """Return the id of the item that a vector belongs to."""

    def item_paths(self) -> list[tuple[int, str]]:
        """Return id and path of all items, ordered by path."""

    def facets(self, column: Facet) -> list[tuple[str, int]]:
        """Count the items of each camera or place, the most frequent first."""

    def counts(self) -> Counts:
        """Count what the library holds."""

    def find_damage(self) -> Iterator[str]:
        """Yield a sentence for each damaged part of the library."""

    def close(self) -> None:
        """Close the file or connection."""
