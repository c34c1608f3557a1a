"""Read what a library holds: its items, their vectors and images."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from polyglance.encoders import Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError, printable
from polyglance.search.open_library import OpenLibrary
from polyglance.search.query import MediaRef, PathLike
from polyglance.search.render.images import decode_thumbnail, read_image
from polyglance.search.scan import resolve_path
from polyglance.search.store import EXCLUDED, SCANNED, LibraryInfo, ModelInfo

if TYPE_CHECKING:
    from PIL.Image import Image


class LibraryContents(OpenLibrary):
    """The items of a library; `polyglance.search.library.Library` adds and searches them."""

    def get(self, media_id: int) -> MediaRef | None:
        """Return what has the id of an earlier hit, or None if it was removed."""
        item = self._store().lookup([media_id]).get(media_id)
        return item and MediaRef.from_item(media_id, *item)

    def vector(self, picture: Picture | MediaRef) -> Vectors:
        """Return the unit vector of an image or of a hit, ``[width]``; `search` takes it too."""
        if not isinstance(picture, MediaRef):
            vector: Vectors = self._encoder().encode_pictures([picture])[0]
            return vector
        rows = self._store().rows(np.array([picture.id], np.int64))
        if not len(rows):
            raise PolyglanceError(f"{printable(str(picture.path))} is no longer in the library")
        return np.array(rows.vectors[0])

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

    def __len__(self) -> int:
        counts = self._store().counts()
        return counts.pictures + counts.clips
