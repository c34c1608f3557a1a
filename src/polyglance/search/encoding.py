"""Files into entries of a library: what indexing does here and bulk encoding on many machines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from polyglance.encoders import Encoder
from polyglance.errors import DataError, PolyglanceError, printable, reason
from polyglance.search.clips import entry_of_clip
from polyglance.search.files import content_hash, shrunk, size_and_date, thumbnail
from polyglance.search.store import BadFile, Entry, Item
from polyglance.search.walking import Candidate
from polyglance.vision.ahead import ahead
from polyglance.vision.clips import can_read_clips
from polyglance.vision.pictures import PictureError, read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 16
"""Pictures that are encoded together."""
AHEAD = 2 * BATCH
"""Files that are hashed, and pictures that are decoded, before they are needed."""
NO_CLIPS = "clips need an optional part: pip install 'polyglance[video]'"


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A picture that waits for the encoder."""

    item: Item
    picture: Image
    thumbnail: bytes | None


class FileEncoder:
    """Makes entries of files with a model."""

    def __init__(self, encoder: Callable[[], Encoder], *, thumbnails: bool = False) -> None:
        """``encoder`` is called when the first file has to be encoded."""
        self._encoder, self._thumbnails = encoder, thumbnails

    def files(self, candidates: Sequence[Candidate]) -> Generator[list[Entry | BadFile]]:
        """What became of each file, some at a time: pictures first, then clips."""
        pictures = [candidate for candidate in candidates if candidate.kind == "picture"]
        clips = [candidate for candidate in candidates if candidate.kind == "clip"]
        unread: list[BadFile] = []

        def readable(
            files: Iterable[tuple[Candidate, str | BadFile]],
        ) -> Iterator[tuple[Candidate, str]]:
            for candidate, content in files:
                if isinstance(content, BadFile):
                    unread.append(content)
                else:
                    yield candidate, content

        with ahead(hashed, pictures, AHEAD) as contents:
            yield from self.pictures(readable(contents))
        if clips and not can_read_clips():
            yield [BadFile(candidate.path, NO_CLIPS) for candidate in clips]
            clips = []
        for candidate, content in readable(map(hashed, clips)):
            yield [self.clip(candidate, content)]
        yield list[Entry | BadFile](unread)

    def pictures(self, jobs: Iterable[tuple[Candidate, str]]) -> Generator[list[Entry | BadFile]]:
        """Pictures with the hashes of their contents, a batch at a time, decoded by threads."""
        with ahead(self._decoded, jobs, AHEAD) as decoded:
            while batch := list(islice(decoded, BATCH)):
                yield self._entries(batch)

    def clip(self, candidate: Candidate, content: str) -> Entry | BadFile:
        """A clip's file with the hash of its content."""
        encoder = self._encoder()
        detail = 3 * pixels_of(encoder)
        try:
            return entry_of_clip(
                candidate, content, encoder, detail=detail, thumbnails=self._thumbnails
            )
        except DataError as error:
            return bad_file(candidate, error)

    def _decoded(self, job: tuple[Candidate, str]) -> _Decoded | BadFile:
        candidate, content = job
        least = 2 * pixels_of(self._encoder())  # as encoders do that are given a file
        try:
            picture = read_picture(candidate.path, at_least=least)
        except PictureError as error:
            return bad_file(candidate, error)
        width, height, taken = size_and_date(candidate.path, picture, candidate.stamp)
        item = Item(candidate.path, "picture", candidate.stamp, content, taken, width, height)
        small = thumbnail(picture) if self._thumbnails else None
        return _Decoded(item, shrunk(picture, 3 * least // 2), small)

    def _entries(self, batch: Sequence[_Decoded | BadFile]) -> list[Entry | BadFile]:
        done: list[Entry | BadFile] = [one for one in batch if isinstance(one, BadFile)]
        decoded = [one for one in batch if isinstance(one, _Decoded)]
        if decoded:
            vectors = self._encoder().encode_pictures([one.picture for one in decoded])
            if not np.isfinite(vectors).all():
                raise PolyglanceError("the model makes no numbers of a picture: give another model")
            done += [
                Entry(one.item, vector[None], thumbnail=one.thumbnail)
                for one, vector in zip(decoded, vectors, strict=True)
            ]
        return done


def pixels_of(encoder: Encoder) -> int:
    """How many pixels a side the encoder looks at; a guess where it does not say."""
    description = getattr(getattr(encoder, "folder", None), "description", None)
    size = getattr(getattr(description, "pictures", None), "size", None)
    return size if isinstance(size, int) else 384


def hashed(candidate: Candidate) -> tuple[Candidate, str | BadFile]:
    """A file with the hash of its content, or why it cannot be read."""
    try:
        return candidate, content_hash(candidate.path)
    except OSError as error:  # a lock or a right that may be another next time: not on record
        return candidate, BadFile(candidate.path, f"cannot be read ({reason(error)})")


def bad_file(candidate: Candidate, error: Exception) -> BadFile:
    """A file that is no picture or clip, and why."""
    why = printable(str(error).removeprefix(f"{candidate.path}: "))
    return BadFile(candidate.path, why, candidate.stamp)


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Pillow's warnings about odd files would tear the progress bar."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield
