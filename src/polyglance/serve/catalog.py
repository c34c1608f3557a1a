"""The library as the server exposes it: items by id, names without paths, files to send.

An item's id is the number of its vector. Ids are never reused (`polyglance.search.store`),
identify one segment of a clip, and reveal nothing about the disk. Displayed paths begin with
the name of the indexed folder.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

import numpy as np

from polyglance.encoders import Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.browsing import Browser
from polyglance.search.library import Library
from polyglance.search.query import ImageQuery, MediaRef, build_filter
from polyglance.search.query_syntax import Weighted
from polyglance.search.results import SearchResults
from polyglance.search.scan import CLIP_SUFFIXES, IMAGE_SUFFIXES, is_within
from polyglance.search.store import BadFile, Counts, Filter, Kind, LibraryUnavailableError
from polyglance.serve.errors import HTTPProblem
from polyglance.serve.folders import Folder, folder_tree
from polyglance.serve.vector_tokens import decode_token, encode_token

MAX_COUNTED_FILES = 200_000
"""In larger libraries files are not counted, and only the indexed folders are listed."""
MAX_FOLDERS = 500
OVERVIEW_SECONDS = 30.0
"""How long an overview is reused at most while the library changes."""
OVERVIEW_COST = 20.0
"""How many times the time that it takes; so a small library is counted again at once."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search; pictures are item ids or tokens of `LibraryCatalog.picture_token`."""

    text: str | None = None
    without: Sequence[str] = ()
    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    folders: Sequence[str] = ()
    kind: str | None = None
    since: str | None = None
    until: str | None = None
    cameras: Sequence[str] = ()
    places: Sequence[str] = ()
    language: str | None = None
    all_segments: bool = False
    like_weights: Sequence[float] = ()
    unlike_weights: Sequence[float] = ()
    """One for each picture, or none."""
    min_score: float | None = None
    off: Sequence[str] = ()
    """Signals that are switched off."""
    correct: bool = True
    literal: bool = False
    stack: bool = False


class FilterRequest(Protocol):
    """The filters of a request; folders are given by their display names."""

    folder: list[str]
    kind: Kind | None
    since: str | None
    until: str | None
    camera: list[str]
    place: list[str]


@dataclass(frozen=True, slots=True)
class Overview:
    """Counts of the library, and its folders by display name with their files at any depth."""

    counts: Counts
    folders: list[tuple[str, int]]
    tree: Mapping[str, Folder]
    """The folders by display name, with their covers (item ids, not those of vectors)."""


@dataclass(frozen=True, slots=True)
class _CachedOverview:
    revision: Hashable
    until: float
    overview: Overview


class LibraryCatalog:
    """What clients may see of a library. The methods block: call them in threads."""

    def __init__(self, library: Library) -> None:
        """Open the catalog of an existing library; `warm_up` loads the model."""
        self._library, self.manifest = library, library.model_info
        self.model_name = library.model_name
        """Of the model that encodes queries."""
        self._overview: _CachedOverview | None = None

    def warm_up(self) -> None:
        """Load the model, the vectors and the timeline, so that the first requests are fast."""
        self._library.search("a", k=1)
        view, _ = self.browser.timeline()
        self.browser.shapes(view)
        self.overview()

    @property
    def browser(self) -> Browser:
        """The library's items by date."""
        return self._library.browser

    def filter(self, request: FilterRequest) -> Filter:
        """Return the filter of a request; raise 422 for one that is invalid."""
        folders = self._folders(request.folder)
        try:
            where = build_filter(folders, request.kind, request.since, request.until)
        except PolyglanceError as error:
            raise HTTPProblem(422, f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        cameras, places = tuple(request.camera) or None, tuple(request.place) or None
        return replace(where, cameras=cameras, places=places)

    def search(self, request: SearchRequest, count: int) -> SearchResults:
        """Return the best ``count`` hits, the best first."""
        folders = self._folders(request.folders)
        try:
            build_filter(None, request.kind, request.since, request.until)
        except PolyglanceError as error:
            raise HTTPProblem(422, f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        try:
            return self._library.search(
                request.text,
                picture=self._pictures(request.like, request.like_weights),
                exclude=request.without,
                exclude_picture=self._pictures(request.unlike, request.unlike_weights),
                k=count,
                folder=folders,
                kind=request.kind,
                since=request.since,
                until=request.until,
                camera=request.cameras or None,
                place=request.places or None,
                language=request.language,
                all_segments=request.all_segments,
                min_score=request.min_score,
                off=request.off,
                correct=request.correct,
                literal=request.literal,
                stack=request.stack,
            )
        except (DataError, LibraryUnavailableError):
            raise
        except PolyglanceError as error:
            raise HTTPProblem(422, "The library's model cannot read this query.") from error

    def picture_token(self, picture: Picture) -> str:
        """Return a token that stands for a picture in a `SearchRequest`; nothing is stored."""
        return encode_token(self._library.vector(picture))

    def embed(
        self, texts: Sequence[str], pictures: Sequence[Picture], language: str | None
    ) -> Vectors:
        """Return unit vectors of texts and then of pictures, ``[n, width]``."""
        parts = [self._library.text_vectors(texts, language=language)] if texts else []
        parts += [self._library.vector(picture)[None] for picture in pictures]
        return np.concatenate(parts)

    def roots(self) -> dict[str, str]:
        """Return the display names of the indexed folders, by path."""
        return self._labels()

    def remove_folder(self, path: str) -> None:
        """Remove a folder from the library."""
        self._library.remove(path)
        self._overview = None

    def unreadable(self) -> list[tuple[BadFile, tuple[str, str]]]:
        """Return the files that could not be read, with their folders and names for display."""
        labels = self._labels()
        files = self._library.problems()
        return [(file, self._display_name(file.path, labels)) for file in files]

    def get(self, item: int) -> MediaRef:
        """Return the item with an id."""
        piece = self._library.get(item)
        if piece is None:
            raise HTTPProblem(404, "There is no such picture or clip in the library.")
        return piece

    def display_names(self, pieces: Sequence[MediaRef]) -> list[tuple[str, str]]:
        """Return folder and file name of items; folders begin with the indexed folder's name."""
        labels = self._labels()
        return [self._display_name(piece.path.as_posix(), labels) for piece in pieces]

    def refresh(self) -> None:
        """Count and list anew at the next request: the library has changed."""
        self._overview = None
        self.browser.refresh()

    def overview(self) -> Overview:
        """Return counts and folders; recount after changes, but not too often."""
        revision, start = self._library.revision, time.monotonic()
        cached = self._overview
        if cached is None or (cached.revision != revision and start >= cached.until):
            counts = self._library.info().counts
            tree = self._folder_tree(counts)
            overview = Overview(counts, self._count_folders(counts, tree), tree)
            cost = time.monotonic() - start
            until = start + min(OVERVIEW_SECONDS, OVERVIEW_COST * cost)
            self._overview = cached = _CachedOverview(revision, until, overview)
        return cached.overview

    def open_file(self, piece: MediaRef) -> tuple[BinaryIO, os.stat_result]:
        """Open an item's file if it still lies in an indexed folder that this user confirmed.

        A file that was indexed by itself, through a manifest, must not be a link. The library
        may come from a stranger, so that it names the file says nothing: it must be a picture or
        clip that indexing a confirmed folder would find.
        """
        path = piece.path.as_posix()
        root = self._root(path, self._labels())
        try:
            real = os.path.realpath(path, strict=True)
            if not is_within(real, path if root is None else os.path.realpath(root)):
                raise PermissionError
            if not self._is_confirmed(path, real):
                raise HTTPProblem(
                    403,
                    "Files of this folder are not served: their owner has not confirmed it"
                    " (`polyglance library trust`).",
                )
            # Open exactly what was checked: no link, and no pipe that would block.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            file = os.fdopen(os.open(real, flags | getattr(os, "O_BINARY", 0)), "rb")
        except (OSError, ValueError):  # ValueError: a path with a null byte
            raise HTTPProblem(404, "The file is not where it was when it was indexed.") from None
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            file.close()
            raise HTTPProblem(404, "The file is not where it was when it was indexed.")
        return file, status

    def thumbnail(self, piece: MediaRef) -> bytes | None:
        """Return the WebP thumbnail stored in the library, or None."""
        return self._library.thumbnail(piece)

    def _is_confirmed(self, path: str, real: str) -> bool:
        """Return whether this user's own indexing of a confirmed folder would find a file."""
        if PurePosixPath(path).suffix.lower() not in IMAGE_SUFFIXES | CLIP_SUFFIXES:
            return False
        return any(
            is_within(path, folder)
            and is_within(real, os.path.realpath(folder))
            and not any(
                part.startswith(".") for part in PurePosixPath(path).relative_to(folder).parts
            )
            for folder in self._library.confirmed
        )

    def _pictures(
        self, refs: Sequence[str], weights: Sequence[float]
    ) -> list[ImageQuery | Weighted[ImageQuery]]:
        """Return pictures of a search, with their weights if they have some."""
        if weights and len(weights) != len(refs):
            raise HTTPProblem(422, "like_weight: give one for each picture, or none.")
        pictures = [self._picture(ref) for ref in refs]
        if not weights:
            return list(pictures)
        return [
            Weighted(picture, weight) for picture, weight in zip(pictures, weights, strict=True)
        ]

    def stack(self, item: int) -> list[MediaRef]:
        """Return an item with its copies, near-duplicates and the rest of its burst."""
        return self._library.stack_of(self.get(item))

    def _picture(self, ref: str) -> MediaRef | Vectors:
        return self.get(int(ref)) if ref.isdecimal() else decode_token(ref, self.manifest.width)

    def _folders(self, names: Sequence[str]) -> list[str] | None:
        """Return the paths of folders given by display name; None for no restriction."""
        roots = {label: root for root, label in self._labels().items()}
        folders = []
        for name in names:
            label, _, inside = name.partition("/")
            parts = PurePosixPath(inside).parts
            if label not in roots or ".." in parts or inside.startswith("/"):
                raise HTTPProblem(422, "folder: the library has no such folder.")
            folders.append(str(PurePosixPath(roots[label], *parts)))
        return folders or None

    def _labels(self) -> dict[str, str]:
        """Return a unique display name for each indexed folder, by path."""
        labels: dict[str, str] = {}
        for root in self._library.folders:
            label = name = Path(root).name or "files"
            copies = 1
            while label in labels.values():
                copies += 1
                label = f"{name} ({copies})"
            labels[root] = label
        return labels

    def _display_name(self, path: str, labels: dict[str, str]) -> tuple[str, str]:
        # By strings: path objects would take a fifth of a search's time.
        root, name = self._root(path, labels), path.rpartition("/")[2]
        if root is None or root == path:
            return "", name
        inside = path[len(root.rstrip("/")) + 1 : -len(name)].rstrip("/")
        return f"{labels[root]}/{inside}" if inside else labels[root], name

    @staticmethod
    def _root(path: str, labels: dict[str, str]) -> str | None:
        """Return the innermost indexed folder that contains a file."""
        return max((root for root in labels if is_within(path, root)), key=len, default=None)

    def _count_folders(self, counts: Counts, tree: Mapping[str, Folder]) -> list[tuple[str, int]]:
        if counts.pictures + counts.clips > MAX_COUNTED_FILES:
            return [(label, 0) for label in self._labels().values()]
        largest = sorted(tree.items(), key=lambda folder: -folder[1].files)[:MAX_FOLDERS]
        listed = [(name, folder.files) for name, folder in largest if folder.files]
        return sorted(listed, key=lambda folder: folder[0].split("/"))

    def _folder_tree(self, counts: Counts) -> dict[str, Folder]:
        """Return all folders; of a library that is too large, only the indexed ones."""
        labels, browser = self._labels(), self.browser
        if counts.pictures + counts.clips > MAX_COUNTED_FILES:
            return {label: Folder(label) for label in labels.values()}
        return folder_tree(labels, browser.item_paths(), browser.view().items)
