"""Bringing a library up to date with folders.

A file with the stamp that is on record is taken to be unchanged. Others are read: one
whose content is on record under a path where nothing lies any more has moved, and keeps
its vectors; the rest is decoded by threads while the encoder computes, and kept a batch
at a time. So a run may be killed at any moment: the same call goes on where it was.

Two processes may index into one library. Each takes the files in an order of its own,
a chunk of neighbours at a time, and passes over what it finds on record when it comes
to it: they meet rarely, and where they do they write the same.
"""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from polyglance.encoders import Encoder
from polyglance.errors import DataError, PolyglanceError, printable, reason
from polyglance.progress import Advance, progress
from polyglance.search.clips import entry_of_clip
from polyglance.search.files import content_hash, shrunk, size_and_date, thumbnail
from polyglance.search.showing import picture_of
from polyglance.search.store import BadFile, Entry, Item, Store
from polyglance.search.walking import Candidate, walk
from polyglance.vision.ahead import ahead
from polyglance.vision.clips import can_read_clips
from polyglance.vision.pictures import PictureError, read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 16
"""Pictures that are encoded and kept together: what a kill costs at most."""
CHUNK = 64
"""Files that lie beside each other and are taken one after another."""
AHEAD = 2 * BATCH
"""Files that are hashed, and pictures that are decoded, before they are needed."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an indexing did; files are pictures and clips."""

    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    bad: tuple[BadFile, ...] = ()
    """Files that are not in the library, with the reason of each."""

    def __str__(self) -> str:
        names = ("added", "changed", "moved", "removed", "unchanged")
        told = [f"{getattr(self, name):,} {name}" for name in names if getattr(self, name)]
        encoded = self.added + self.changed
        rate = f" in {self.seconds:.0f} s, {encoded / self.seconds:.1f} a second" if encoded else ""
        return (", ".join(told) or "nothing to index") + rate


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A picture that waits for the encoder."""

    item: Item
    picture: Image
    thumbnail: bytes | None


class Indexing:
    """One run over folders."""

    def __init__(
        self,
        store: Store,
        encoder: Callable[[], Encoder],
        *,
        thumbnails: bool = False,
        quiet: bool = False,
        order: random.Random | None = None,
    ) -> None:
        """``encoder`` is called when the first picture has to be encoded.

        ``order`` decides which files come first.
        """
        self._store, self._encoder = store, encoder
        self._thumbnails, self._quiet = thumbnails, quiet
        self._order = order or random.Random()
        self._counts = dict.fromkeys(("added", "changed", "moved", "unchanged"), 0)
        self._unread: list[BadFile] = []
        self._on_record: set[str] = set()
        self._advance: Advance = lambda steps: None

    def run(self, places: Sequence[str]) -> Report:
        """Bring what is on record of these folders and files up to date."""
        began = time.monotonic()
        walked = {place: list(self._walked(place)) for place in places}
        candidates = {c.path: c for found in walked.values() for c in found}
        kinds = {
            kind: [c for c in candidates.values() if c.kind == kind] for kind in ("picture", "clip")
        }
        with progress("Indexing", len(candidates), quiet=self._quiet) as advance, _quiet_decoders():
            self._advance = advance
            self._index_pictures(kinds["picture"])
            self._index_clips(kinds["clip"])
        removed = sum(self._forget_vanished(place, candidates) for place in places)
        known = {bad.path: bad for place in places for bad in self._store.bad(place)}
        bad = known | {bad.path: bad for bad in self._unread}
        seconds = time.monotonic() - began
        return Report(**self._counts, removed=removed, seconds=seconds, bad=tuple(bad.values()))

    def _walked(self, place: str) -> Iterator[Candidate]:
        if _is_gone(place):
            return
        for found in walk(place, self._store.places("left out")):
            if isinstance(found, Candidate):
                yield found
            else:
                self._unread.append(found)

    def _index_pictures(self, candidates: list[Candidate]) -> None:
        with (
            ahead(_hashed, self._pending(candidates), AHEAD) as hashed,
            ahead(self._decoded, self._unknown(hashed), AHEAD) as decoded,
        ):
            while batch := list(islice(decoded, BATCH)):
                self._keep(batch)

    def _index_clips(self, candidates: list[Candidate]) -> None:
        if candidates and not can_read_clips():
            why = "clips need an optional part: pip install 'polyglance[video]'"
            self._unread += [BadFile(candidate.path, why) for candidate in candidates]
            return
        for candidate, content in self._unknown(map(_hashed, self._pending(candidates))):
            encoder = self._encoder()
            try:
                entry = entry_of_clip(
                    candidate, content, encoder, detail=3 * pixels_of(encoder),
                    thumbnails=self._thumbnails,
                )  # fmt: skip
            except DataError as error:
                self._store.put_bad([_bad(candidate, error)])
            else:
                self._store.put([entry])
                self._count(candidate)
            self._advance(1)

    def _pending(self, candidates: list[Candidate]) -> Iterator[Candidate]:
        """Those that are not on record as they are, when it is their turn."""
        chunks = [candidates[start : start + CHUNK] for start in range(0, len(candidates), CHUNK)]
        self._order.shuffle(chunks)
        for chunk in chunks:
            known = self._store.known([candidate.path for candidate in chunk])
            for candidate in chunk:
                record = known.get(candidate.path)
                if record is None or record.stamp != candidate.stamp:
                    if record is not None and record.bad is None:
                        self._on_record.add(candidate.path)
                    yield candidate
                    continue
                if record.bad is None:
                    self._counts["unchanged"] += 1
                    if self._thumbnails and not record.thumbnail:
                        self._add_thumbnail(candidate)
                self._advance(1)

    def _unknown(
        self, hashed: Iterable[tuple[Candidate, str | BadFile]]
    ) -> Iterator[tuple[Candidate, str]]:
        """Those whose content is not on record under any path."""
        for candidate, content in hashed:
            if isinstance(content, BadFile):
                self._unread.append(content)
            elif not self._recognised(candidate, content):
                yield candidate, content
                continue
            self._advance(1)

    def _recognised(self, candidate: Candidate, content: str) -> bool:
        """Whether a file's content is on record; then so is the file from now on."""
        path, stamp = candidate.path, candidate.stamp
        items = [item for item in self._store.holding(content) if item.kind == candidate.kind]
        if any(item.path == path for item in items):
            self._store.touch(path, stamp)
            self._counts["unchanged"] += 1
            return True
        for item in items:
            if _is_gone(item.path):
                self._store.move(item.path, path, stamp)
                self._counts["moved"] += 1
                return True
        copied = self._store.entry(items[0].path) if items else None
        if copied is None:
            return False
        self._store.put([replace(copied, item=replace(copied.item, path=path, stamp=stamp))])
        self._count(candidate)
        return True

    def _decoded(self, job: tuple[Candidate, str]) -> _Decoded | BadFile:
        candidate, content = job
        least = 2 * pixels_of(self._encoder())  # as encoders do that are given a file
        try:
            picture = read_picture(candidate.path, at_least=least)
        except PictureError as error:
            return _bad(candidate, error)
        width, height, taken = size_and_date(candidate.path, picture, candidate.stamp)
        item = Item(candidate.path, "picture", candidate.stamp, content, taken, width, height)
        small = thumbnail(picture) if self._thumbnails else None
        return _Decoded(item, shrunk(picture, 3 * least // 2), small)

    def _keep(self, batch: list[_Decoded | BadFile]) -> None:
        decoded = [one for one in batch if isinstance(one, _Decoded)]
        bad = [one for one in batch if isinstance(one, BadFile)]
        if decoded:
            vectors = self._encoder().encode_pictures([one.picture for one in decoded])
            if not np.isfinite(vectors).all():
                raise PolyglanceError("the model makes no numbers of a picture: give another model")
            self._store.put(
                Entry(one.item, vector[None], thumbnail=one.thumbnail)
                for one, vector in zip(decoded, vectors, strict=True)
            )
            for one in decoded:
                self._count(one.item)
        if bad:
            self._store.put_bad(bad)
        self._advance(len(batch))

    def _count(self, file: Candidate | Item) -> None:
        self._counts["changed" if file.path in self._on_record else "added"] += 1

    def _add_thumbnail(self, candidate: Candidate) -> None:
        try:
            small = thumbnail(picture_of(candidate.path, candidate.kind))
        except DataError as error:
            self._unread.append(_bad(candidate, error))
        else:
            self._store.put_thumbnail(candidate.path, small)

    def _forget_vanished(self, place: str, candidates: dict[str, Candidate]) -> int:
        """Delete what is on record of files that are gone."""
        gone = [
            path for path in self._store.paths(place) if path not in candidates and _is_gone(path)
        ]
        if gone not in ([], [place]) and not _is_there(place):
            self._unread.append(
                BadFile(
                    place,
                    f"nothing is there now, is a disk not mounted? Its {len(gone):,} files stay on"
                    " record; `polyglance library remove` deletes them",
                )
            )
            return 0
        return sum(self._store.forget(gone[i : i + 1000]) for i in range(0, len(gone), 1000))


def pixels_of(encoder: Encoder) -> int:
    """How many pixels a side the encoder looks at; a guess where it does not say."""
    description = getattr(getattr(encoder, "folder", None), "description", None)
    size = getattr(getattr(description, "pictures", None), "size", None)
    return size if isinstance(size, int) else 384


def _hashed(candidate: Candidate) -> tuple[Candidate, str | BadFile]:
    try:
        return candidate, content_hash(candidate.path)
    except OSError as error:  # a lock or a right that may be another next time: not on record
        return candidate, BadFile(candidate.path, f"cannot be read ({reason(error)})")


def _bad(candidate: Candidate, error: Exception) -> BadFile:
    why = printable(str(error).removeprefix(f"{candidate.path}: "))
    return BadFile(candidate.path, why, candidate.stamp)


def _is_gone(path: str) -> bool:
    """Whether there is no such file; one that must not be looked at is not gone."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _is_there(place: str) -> bool:
    """Whether there is anything at a place: an empty folder may be a disk that is not mounted."""
    return not _is_gone(place) and (not os.path.isdir(place) or bool(os.listdir(place)))  # noqa: PTH112, PTH208


@contextmanager
def _quiet_decoders() -> Iterator[None]:
    """Pillow's warnings about odd files would tear the progress bar."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield
