"""Bringing a library up to date with folders.

A file with the stamp that is on record is taken to be unchanged. Others are read: one
whose content is on record under a path where nothing lies any more has moved, and keeps
its vectors; the rest is decoded by threads while the encoder computes, and kept a batch
at a time. So a run may be killed at any moment: the same call goes on where it was.

A folder where nothing is may be a disk that is away, and what is on record of it stays:
a file with the same content elsewhere is a copy, and takes over the vectors. So it is when
a folder that was added has been renamed; `polyglance library remove` deletes its old name.

Two processes may index into one library. Each takes the files in an order of its own,
a chunk of neighbours at a time, and passes over what it finds on record when it comes
to it: they meet rarely, and where they do they write the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from polyglance.encoders import Encoder
from polyglance.errors import DataError
from polyglance.progress import Advance, progress
from polyglance.search.encoding import (
    AHEAD,
    NO_CLIPS,
    FileEncoder,
    bad_file,
    hashed,
    quiet_decoders,
)
from polyglance.search.files import thumbnail
from polyglance.search.showing.pictures import picture_of
from polyglance.search.store import BadFile, Entry, Item, Store
from polyglance.search.walking import Candidate, is_gone, is_there, is_within, walk
from polyglance.vision.ahead import ahead
from polyglance.vision.clips import can_read_clips

CHUNK = 64
"""Files that lie beside each other and are taken one after another."""


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
        self._store, self._files = store, FileEncoder(encoder, thumbnails=thumbnails)
        self._thumbnails, self._quiet = thumbnails, quiet
        self._order = order or random.Random()
        self._counts = dict.fromkeys(("added", "changed", "moved", "unchanged"), 0)
        self._unread: list[BadFile] = []
        self._on_record: set[str] = set()
        self._homes: list[str] = []
        self._advance: Advance = lambda steps: None

    def run(self, places: Sequence[str]) -> Report:
        """Bring what is on record of these folders and files up to date."""
        began = time.monotonic()
        self._homes = sorted({*self._store.places("walked"), *places}, key=len, reverse=True)
        walked = {place: list(self._walked(place)) for place in places}
        candidates = {c.path: c for found in walked.values() for c in found}
        kinds = {
            kind: [c for c in candidates.values() if c.kind == kind] for kind in ("picture", "clip")
        }
        with progress("Indexing", len(candidates), quiet=self._quiet) as advance, quiet_decoders():
            self._advance = advance
            self._index_pictures(kinds["picture"])
            self._index_clips(kinds["clip"])
        removed = sum(self._forget_vanished(place, candidates) for place in places)
        known = {bad.path: bad for place in places for bad in self._store.bad(place)}
        bad = known | {bad.path: bad for bad in self._unread}
        seconds = time.monotonic() - began
        return Report(**self._counts, removed=removed, seconds=seconds, bad=tuple(bad.values()))

    def _walked(self, place: str) -> Iterator[Candidate]:
        if is_gone(place):
            return
        for found in walk(place, self._store.places("left out")):
            if isinstance(found, Candidate):
                yield found
            else:
                self._unread.append(found)

    def _index_pictures(self, candidates: list[Candidate]) -> None:
        with (
            ahead(hashed, self._pending(candidates), AHEAD) as contents,
            closing(self._files.pictures(self._unknown(contents))) as batches,
        ):
            for batch in batches:
                self._keep(batch)

    def _index_clips(self, candidates: list[Candidate]) -> None:
        if candidates and not can_read_clips():
            self._unread += [BadFile(candidate.path, NO_CLIPS) for candidate in candidates]
            return
        for candidate, content in self._unknown(map(hashed, self._pending(candidates))):
            self._keep([self._files.clip(candidate, content)])

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
        self, files: Iterable[tuple[Candidate, str | BadFile]]
    ) -> Iterator[tuple[Candidate, str]]:
        """Those whose content is not on record under any path."""
        for candidate, content in files:
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
            if is_gone(item.path) and not self._is_away(item.path):
                self._store.move(item.path, path, stamp)
                self._counts["moved"] += 1
                return True
        copied = self._store.entry(items[0].path) if items else None
        if copied is None:
            return False
        self._store.put([replace(copied, item=replace(copied.item, path=path, stamp=stamp))])
        self._count(candidate)
        return True

    def _is_away(self, path: str) -> bool:
        """Whether a file may lie on a disk that is not mounted."""
        home = next((place for place in self._homes if is_within(path, place)), path)
        return home != path and not is_there(home)

    def _keep(self, done: Sequence[Entry | BadFile]) -> None:
        entries = [one for one in done if isinstance(one, Entry)]
        bad = [one for one in done if isinstance(one, BadFile)]
        if entries:
            self._store.put(entries)
            for entry in entries:
                self._count(entry.item)
        if bad:
            self._store.put_bad(bad)
        self._advance(len(done))

    def _count(self, file: Candidate | Item) -> None:
        self._counts["changed" if file.path in self._on_record else "added"] += 1

    def _add_thumbnail(self, candidate: Candidate) -> None:
        try:
            small = thumbnail(picture_of(candidate.path, candidate.kind))
        except DataError as error:
            self._unread.append(bad_file(candidate, error))
        else:
            self._store.put_thumbnail(candidate.path, small)

    def _forget_vanished(self, place: str, candidates: dict[str, Candidate]) -> int:
        """Delete what is on record of files that are gone."""
        gone = [
            path for path in self._store.paths(place) if path not in candidates and is_gone(path)
        ]
        if gone not in ([], [place]) and not is_there(place):
            self._unread.append(
                BadFile(
                    place,
                    f"nothing is there now, is a disk not mounted? Its {len(gone):,} files stay on"
                    " record; `polyglance library remove` deletes them",
                )
            )
            return 0
        return sum(self._store.forget(gone[i : i + 1000]) for i in range(0, len(gone), 1000))
