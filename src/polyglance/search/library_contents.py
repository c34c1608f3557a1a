"""Read what a library holds: its items, their vectors and images."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from polyglance.encoders import Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError, printable
from polyglance.search.browsing import Browser
from polyglance.search.open_library import OpenLibrary
from polyglance.search.query import MediaRef, OneOrMore, PathLike, build_filter
from polyglance.search.render.images import decode_thumbnail, read_image
from polyglance.search.scan import is_within, resolve_path
from polyglance.search.serialization import READ_BLOCK
from polyglance.search.store import (
    EXCLUDED,
    SCANNED,
    BadFile,
    LibraryInfo,
    LibraryNotFoundError,
    ModelInfo,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from polyglance.search.classification import Classification
    from polyglance.search.export import VectorExport


class LibraryContents(OpenLibrary):
    """The items of a library; `polyglance.search.library.Library` adds and searches them.

    It is a sequence of its pictures and clips, ordered by path: ``library[0]``,
    ``for item in library``, ``library["photos/dog.jpg"]``, ``"photos/dog.jpg" in library``.
    """

    def get(self, media_id: int) -> MediaRef | None:
        """Return what has the id of an earlier hit, or None if it was removed."""
        item = self._store().lookup([media_id]).get(media_id)
        return item and MediaRef.from_item(media_id, *item)

    @cached_property
    def browser(self) -> Browser:
        """The items by date or in the order in which they were added, for pages of any size."""
        return Browser(self._store)

    def vector(self, picture: Picture | MediaRef) -> Vectors:
        """Return the unit vector of an image or of a hit, ``[width]``; `search` takes it too."""
        if not isinstance(picture, MediaRef):
            vector: Vectors = self._encoder().encode_pictures([picture])[0]
            return vector
        rows = self._store().rows(np.array([picture.id], np.int64))
        if not len(rows):
            raise PolyglanceError(f"{printable(str(picture.path))} is no longer in the library")
        return np.array(rows.vectors[0])

    def text_vectors(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """Return the unit vectors of texts, ``[len(texts), width]``."""
        return self._encoder().encode_texts(list(texts), language=language)

    def thumbnail(self, media: MediaRef) -> bytes | None:
        """Return the stored thumbnail of a file (WebP), if any; of a clip, its first frame."""
        return self._store().thumbnail(media.path.as_posix())

    def picture(self, media: MediaRef) -> Image:
        """Return the image of a hit, from its thumbnail or else from its file."""
        thumbnail = None if media.span else self.thumbnail(media)
        if thumbnail:
            return decode_thumbnail(thumbnail)
        return read_image(str(media.path), media.kind, media.span)

    def paths(self, folder: PathLike | None = None) -> Iterator[str]:
        """Yield the files on record, unreadable ones included; all, or those in a folder."""
        return self._store().paths(None if folder is None else resolve_path(folder))

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders and files that were added, which `update` scans."""
        return tuple(self._store().places(SCANNED))

    @property
    def model_info(self) -> ModelInfo:
        """The model that made the library's vectors."""
        return self._store().model_info

    @property
    def revision(self) -> Hashable:
        """A value that changes when anything may have been written, by anybody."""
        return self._store().revision()

    def info(self) -> LibraryInfo:
        """Return what the library is and how much it holds."""
        store = self._store()
        return LibraryInfo(
            self.name,
            self._backend.size(),
            store.model_info,
            store.counts(),
            self.folders,
            tuple(store.places(EXCLUDED)),
        )

    def problems(self, folder: PathLike | None = None) -> list[BadFile]:
        """Return the files that cannot be searched, each with the reason, ordered by path.

        Args:
            folder: Only in this folder.
        """
        from polyglance.search.problems import find_problems

        return find_problems(self._store(), None if folder is None else resolve_path(folder))

    def has_files_in(self, folder: PathLike) -> bool:
        """Return whether anything of a folder, or a single file, is on record."""
        return next(self.paths(folder), None) is not None

    def covers(self, folder: PathLike) -> bool:
        """Return whether a folder or file is, lies in or contains one that was added."""
        path = resolve_path(folder)
        added = any(is_within(path, other) or is_within(other, path) for other in self.folders)
        return added or self.has_files_in(folder)

    def export(self, path: PathLike, *, overwrite: bool = False) -> VectorExport:
        """Write all vectors and what they are of: ``.npy`` with ``.jsonl``, or ``.parquet``.

        Args:
            path: The file; its suffix is the format.
            overwrite: Replace files that exist.

        Returns:
            How many vectors were written, and the files.
        """
        from polyglance.search.export import export_vectors

        return export_vectors(self, Path(path), overwrite=overwrite)

    def classify(
        self,
        labels: Sequence[str],
        *,
        folder: OneOrMore[PathLike] = None,
        kind: str | None = None,
        templates: Sequence[str] | None = None,
        language: str | None = None,
        min_probability: float = 0.0,
    ) -> list[Classification]:
        """Sort pictures and clips by labels in any language, without training (zero-shot).

        Args:
            labels: What to sort by: ``["cat", "dog"]``.
            folder: Only files in these folders.
            kind: Only ``"picture"`` or ``"clip"``.
            templates: Sentences in which labels are read, with ``{}`` for the label; None for
                `polyglance.search.classification.TEMPLATES`.
            language: The language of the labels, for a model of words.
            min_probability: Less probable labels are none of these.

        Returns:
            The label of each item, or None where none fits, with all probabilities; ordered by
            path.
        """
        from polyglance.search.classification import TEMPLATES, classify_items

        return classify_items(
            self._store(),
            self._encoder(),
            labels,
            where=build_filter(folder, kind, None, None),
            templates=TEMPLATES if templates is None else templates,
            language=language,
            min_probability=min_probability,
        )

    def __iter__(self) -> Iterator[MediaRef]:
        """Yield the pictures and clips, ordered by path; files may be added meanwhile."""
        path = ""
        while block := self._store().items_after(path, READ_BLOCK):
            yield from (MediaRef.from_item(first, item, None) for first, item in block)
            path = block[-1][1].path

    @overload
    def __getitem__(self, key: int | PathLike) -> MediaRef: ...
    @overload
    def __getitem__(self, key: slice) -> list[MediaRef]: ...
    def __getitem__(self, key: int | slice | PathLike) -> MediaRef | list[MediaRef]:
        """Return the item at a path, or by its position in the order of paths.

        Of a clip the id and the vector are those of its first segment.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            positions = range(start, stop, step)
            if not positions:
                return []
            first = min(positions[0], positions[-1])
            items = self._at(first, max(positions[0], positions[-1]) - first + 1)
            return [items[place - first] for place in positions if place - first < len(items)]
        if isinstance(key, int):
            items = self._at(key + len(self) if key < 0 else key, 1)
            if not items:
                raise IndexError(f"{self.name} has {len(self):,} items, and none at {key}")
            return items[0]
        found = self._store().item_at(resolve_path(key))
        if found is None:
            raise KeyError(f"{printable(str(key))} is not in the library")
        return MediaRef.from_item(found[0], found[1], None)

    def __contains__(self, key: object) -> bool:
        """Return whether a file is in the library, given as a path or as an item."""
        path = key.path if isinstance(key, MediaRef) else key
        if not isinstance(path, str | Path):
            return False
        try:
            return self._store().item_at(resolve_path(path)) is not None
        except LibraryNotFoundError:
            return False

    def _at(self, position: int, count: int) -> list[MediaRef]:
        items = self._store().items_after("", count, offset=position) if position >= 0 else ()
        return [MediaRef.from_item(first, item, None) for first, item in items]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: counts, folders, and the newest pictures."""
        from polyglance.search.render.notebook import library_html

        return library_html(self)

    def __len__(self) -> int:
        counts = self._store().counts()
        return counts.pictures + counts.clips
