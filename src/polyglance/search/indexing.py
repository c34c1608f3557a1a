"""Bring a library up to date with folders.

A file whose signature is on record is taken to be unchanged. Others are hashed: if the content
is on record under a path that no longer exists, the file has moved and keeps its vectors;
otherwise it is decoded by threads while the encoder computes, and stored in batches. So a run
may be killed at any moment, and the same call continues where it stopped.

An empty folder may be a disk that is not mounted, and what is on record of it stays: a file
with the same content elsewhere is a copy, and gets the same vectors. The same happens when an
added folder was renamed; `polyglance library remove` deletes its old name.

Several processes may index into one library. Each takes the files in a random order of its
own, a chunk of neighbours at a time, and skips what is on record when it comes to it: they
rarely work on the same files, and where they do they write the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from polyglance.encoders import Encoder
from polyglance.errors import DataError
from polyglance.search.encoding import (
    MISSING_VIDEO_EXTRA,
    PREFETCH,
    FileEncoder,
    bad_file,
    hash_file,
    quiet_decoders,
)
from polyglance.search.files import make_thumbnail
from polyglance.search.render.images import read_image
from polyglance.search.scan import ScannedFile, has_content, is_missing, is_within, scan
from polyglance.search.store import EXCLUDED, SCANNED, BadFile, Entry, Item, Store
from polyglance.utils.prefetch import prefetch
from polyglance.utils.progress import Advance, progress
from polyglance.vision.clips import can_read_clips

CHUNK_SIZE = 64
"""Neighbouring files that are taken one after another."""
DELETE_SIZE = 1000
"""Files deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an indexing run did; counts are of pictures and clips."""

    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    bad: tuple[BadFile, ...] = ()
    """Files that could not be indexed, each with the reason."""

    def __str__(self) -> str:
        names = ("added", "changed", "moved", "removed", "unchanged")
        counts = [f"{getattr(self, name):,} {name}" for name in names if getattr(self, name)]
        encoded = self.added + self.changed
        rate = f" in {self.seconds:.0f} s, {encoded / self.seconds:.1f} a second" if encoded else ""
        return (", ".join(counts) or "nothing to index") + rate


class Indexer:
    """One indexing run."""

    def __init__(
        self,
        store: Store,
        encoder: Callable[[], Encoder],
        *,
        thumbnails: bool = False,
        quiet: bool = False,
        order: random.Random | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            store: The library.
            encoder: Loads the model; called when the first image has to be encoded.
            thumbnails: Also store thumbnails.
            quiet: Show no progress bar.
            order: Decides which files come first.
        """
        self._store, self._files = store, FileEncoder(encoder, thumbnails=thumbnails)
        self._thumbnails, self._quiet = thumbnails, quiet
        self._order = order or random.Random()
        self._counts = dict.fromkeys(("added", "changed", "moved", "unchanged"), 0)
        self._bad: list[BadFile] = []
        self._changed_paths: set[str] = set()
        self._roots: list[str] = []
        self._advance: Advance = lambda steps: None

    def run(self, paths: Sequence[str]) -> IndexReport:
        """Bring what is on record of these folders and files up to date."""
        start = time.monotonic()
        self._roots = sorted({*self._store.places(SCANNED), *paths}, key=len, reverse=True)
        files = {file.path: file for path in paths for file in self._scan(path)}
        kinds = {
            kind: [file for file in files.values() if file.kind == kind]
            for kind in ("picture", "clip")
        }
        with progress("Indexing", len(files), quiet=self._quiet) as advance, quiet_decoders():
            self._advance = advance
            self._index_pictures(kinds["picture"])
            self._index_clips(kinds["clip"])
        removed = sum(self._delete_missing(path, files) for path in paths)
        recorded = {bad.path: bad for path in paths for bad in self._store.bad_files(path)}
        bad = recorded | {bad.path: bad for bad in self._bad}
        seconds = time.monotonic() - start
        return IndexReport(
            **self._counts, removed=removed, seconds=seconds, bad=tuple(bad.values())
        )

    def _scan(self, path: str) -> Iterator[ScannedFile]:
        if is_missing(path):
            return
        for file in scan(path, self._store.places(EXCLUDED)):
            if isinstance(file, ScannedFile):
                yield file
            else:
                self._bad.append(file)

    def _index_pictures(self, files: list[ScannedFile]) -> None:
        with (
            prefetch(hash_file, self._pending(files), PREFETCH) as hashed,
            closing(self._files.encode_images(self._unrecognized(hashed))) as batches,
        ):
            for batch in batches:
                self._store_batch(batch)

    def _index_clips(self, files: list[ScannedFile]) -> None:
        if files and not can_read_clips():
            self._bad += [BadFile(file.path, MISSING_VIDEO_EXTRA) for file in files]
            return
        for file, digest in self._unrecognized(map(hash_file, self._pending(files))):
            self._store_batch([self._files.encode_clip(file, digest)])

    def _pending(self, files: list[ScannedFile]) -> Iterator[ScannedFile]:
        """Yield the files whose signature is not on record when it is their turn."""
        chunks = [files[start : start + CHUNK_SIZE] for start in range(0, len(files), CHUNK_SIZE)]
        self._order.shuffle(chunks)
        for chunk in chunks:
            records = self._store.records([file.path for file in chunk])
            for file in chunk:
                record = records.get(file.path)
                if record is None or record.signature != file.signature:
                    if record is not None and record.error is None:
                        self._changed_paths.add(file.path)
                    yield file
                    continue
                if record.error is None:
                    self._counts["unchanged"] += 1
                    if self._thumbnails and not record.thumbnail:
                        self._add_thumbnail(file)
                self._advance(1)

    def _unrecognized(
        self, hashed: Iterable[tuple[ScannedFile, str | BadFile]]
    ) -> Iterator[tuple[ScannedFile, str]]:
        """Yield the files whose content is not on record under any path."""
        for file, digest in hashed:
            if isinstance(digest, BadFile):
                self._bad.append(digest)
            elif not self._recognize(file, digest):
                yield file, digest
                continue
            self._advance(1)

    def _recognize(self, file: ScannedFile, digest: str) -> bool:
        """Record a file without encoding it if its content is on record; return whether it is."""
        path, signature = file.path, file.signature
        items = [item for item in self._store.items_with_content(digest) if item.kind == file.kind]
        if any(item.path == path for item in items):
            self._store.update_signature(path, signature)
            self._counts["unchanged"] += 1
            return True
        for item in items:
            if is_missing(item.path) and not self._may_be_unmounted(item.path):
                self._store.move(item.path, path, signature)
                self._counts["moved"] += 1
                return True
        original = self._store.entry(items[0].path) if items else None
        if original is None:
            return False
        copy = replace(original, item=replace(original.item, path=path, signature=signature))
        self._store.put([copy])
        self._count(file)
        return True

    def _may_be_unmounted(self, path: str) -> bool:
        """Return whether a file may be on a disk that is not mounted."""
        root = next((root for root in self._roots if is_within(path, root)), path)
        return root != path and not has_content(root)

    def _store_batch(self, batch: Sequence[Entry | BadFile]) -> None:
        entries = [file for file in batch if isinstance(file, Entry)]
        bad = [file for file in batch if isinstance(file, BadFile)]
        if entries:
            self._store.put(entries)
            for entry in entries:
                self._count(entry.item)
        if bad:
            self._store.put_bad_files(bad)
            self._bad += [file for file in bad if file.signature is None]  # not on record
        self._advance(len(batch))

    def _count(self, file: ScannedFile | Item) -> None:
        self._counts["changed" if file.path in self._changed_paths else "added"] += 1

    def _add_thumbnail(self, file: ScannedFile) -> None:
        try:
            thumbnail = make_thumbnail(read_image(file.path, file.kind))
        except DataError as error:
            self._bad.append(bad_file(file, error))
        else:
            self._store.put_thumbnail(file.path, thumbnail)

    def _delete_missing(self, root: str, files: dict[str, ScannedFile]) -> int:
        """Delete what is on record of files that no longer exist; return how many."""
        missing = [
            path for path in self._store.paths(root) if path not in files and is_missing(path)
        ]
        if missing not in ([], [root]) and not has_content(root):
            self._bad.append(
                BadFile(
                    root,
                    "is empty or missing: is a disk not mounted? Its"
                    f" {len(missing):,} files stay in the library; `polyglance library remove`"
                    " deletes them",
                )
            )
            return 0
        return delete_in_batches(self._store, missing)


def delete_in_batches(store: Store, paths: Sequence[str]) -> int:
    """Delete what is on record of files, in several transactions; return how many items."""
    return sum(
        store.delete(paths[start : start + DELETE_SIZE])
        for start in range(0, len(paths), DELETE_SIZE)
    )
