"""Bring a library up to date with folders.

A file whose signature is on record is taken to be unchanged. Others are read and hashed: if
the content is on record under a path that no longer exists, the file has moved and keeps its
vectors; otherwise the bytes that were hashed are decoded by processes with limits while the
encoder computes, and stored in batches. So a run may be killed at any moment, and the same call
continues where it stopped.

A file whose content cannot be decoded is on record too, and is tried again when it changes. One
that cannot be read now (a disk away, a permission lost) is not: the next run tries it again, and
what is on record of it stays.

An empty folder may be a disk that is not mounted, and what is on record of it stays: a file
with the same content elsewhere is a copy, and gets the same vectors. The same happens when an
added folder was renamed; `polyglance library remove` deletes its old name. A folder inside an
added one that was another disk, or that cannot be read, keeps its files likewise.

Several processes may index into one library. Each takes the files in a random order of its
own, a chunk of neighbours at a time, and skips what is on record when it comes to it: they
rarely work on the same files, and where they do they write the same.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError
from polyglance.search.encoding import (
    MISSING_VIDEO_EXTRA,
    NO_FEATURES,
    FileEncoder,
    HashedFile,
    is_passing,
    quiet_decoders,
)
from polyglance.search.scan import (
    ScannedFile,
    format_scan_time,
    has_content,
    is_missing,
    is_mount,
    is_within,
    last_scan_of,
    scan,
)
from polyglance.search.signals.library_signals import with_place
from polyglance.search.store import (
    EXCLUDED,
    LAST_SCAN,
    MOUNTED,
    SCANNED,
    BadFile,
    Entry,
    FileRecord,
    FileSignature,
    Item,
    Store,
)
from polyglance.utils.progress import Advance, ProgressCallback, progress, report_to
from polyglance.vision.clips import can_read_clips
from polyglance.vision.limited_decoding import DecodeLimits

CHUNK_SIZE = 64
"""Neighbouring files that are taken one after another."""
DELETE_SIZE = 1000
"""Files deleted in one transaction."""
CLOCK_NS = 100_000_000
"""How far the clock of a file system may be behind ours, in nanoseconds."""


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
        again: bool = False,
        quiet: bool = False,
        on_progress: ProgressCallback | None = None,
        limits: DecodeLimits | None = None,
        order: random.Random | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            store: The library.
            encoder: Loads the model; called when the first image has to be encoded.
            thumbnails: Also store thumbnails.
            again: Also encode files that are unchanged, to replace their vectors.
            quiet: Show no progress bar.
            on_progress: Called with the number of files done and of all; what it raises ends the
                run.
            limits: What decoding a file may take.
            order: Decides which files come first.
        """
        self._store = store
        self._files = FileEncoder(encoder, thumbnails=thumbnails, limits=limits)
        self._thumbnails, self._again, self._quiet = thumbnails, again, quiet
        self._order, self._on_progress = order or random.Random(), on_progress
        self._counts = dict.fromkeys(("added", "changed", "moved", "unchanged"), 0)
        self._bad: list[BadFile] = []
        self._changed_paths: set[str] = set()
        self._roots: list[str] = []
        self._unreadable: list[str] = []
        self._unread = False
        """Whether a file or folder could not be read, which may be otherwise at the next run."""
        self._touched: set[str] = set()
        """Files that were changed, renamed or given other rights since the last scan."""
        self._advance: Advance = lambda steps: None

    def run(self, paths: Sequence[str]) -> IndexReport:
        """Bring what is on record of these folders and files up to date."""
        start, begun = time.monotonic(), time.time_ns()
        places = {*self._store.places(SCANNED), *self._store.places(MOUNTED), *paths}
        self._roots = sorted(places, key=len, reverse=True)
        recorded = [path for path in paths if not self._is_one_of_many(path)]
        for path in recorded:
            self._record_first_scan(path, begun)
        files = {file.path: file for path in paths for file in self._scan(path)}
        kinds = {
            kind: [file for file in files.values() if file.kind == kind]
            for kind in ("picture", "clip")
        }
        with progress("Indexing", len(files), quiet=self._quiet) as advance, quiet_decoders():
            callback = self._on_progress
            self._advance = report_to(advance, callback, len(files)) if callback else advance
            self._index_pictures(kinds["picture"])
            self._index_clips(kinds["clip"])
        removed = sum(self._delete_missing(path, files) for path in paths)
        for path in recorded:
            self._record_scan(path, begun)
        known = {bad.path: bad for path in paths for bad in self._store.bad_files(path)}
        bad = known | {bad.path: bad for bad in self._bad}
        seconds = time.monotonic() - start
        return IndexReport(
            **self._counts, removed=removed, seconds=seconds, bad=tuple(bad.values())
        )

    def _scan(self, path: str) -> Iterator[ScannedFile]:
        if is_missing(path):
            return
        mounted = set[str]()
        since = last_scan_of(path, self._store.places(LAST_SCAN))
        for file in scan(path, self._store.places(EXCLUDED), mounted):
            if isinstance(file, ScannedFile):
                if since is not None and file.ctime_ns > since - CLOCK_NS:
                    self._touched.add(file.path)
                yield file
            else:
                self._bad.append(file)
                self._unreadable.append(file.path)
                self._unread |= "cannot be read" in file.reason
        for folder in mounted.difference(self._store.places(MOUNTED)):
            self._store.add_place(MOUNTED, folder)

    def _is_one_of_many(self, path: str) -> bool:
        """Return whether a path is a file of an added folder, whose scans are what is recorded."""
        if os.path.isdir(path):  # noqa: PTH112 (unlike Path.is_dir it never raises)
            return False
        return any(is_within(path, root) for root in self._store.places(SCANNED) if root != path)

    def _record_scan(self, path: str, begun: int) -> None:
        """Record that all of a folder's files were looked at since ``begun``, if they were."""
        if is_missing(path) or self._unread:
            return
        now = format_scan_time(path, begun)
        recorded = [text for text in self._store.places(LAST_SCAN) if text != now]
        self._store.add_place(LAST_SCAN, now)
        inside = [text for text in recorded if is_within(text.split(" ", 1)[1], path)]
        self._store.drop_places(LAST_SCAN, inside)

    def _record_first_scan(self, path: str, begun: int) -> None:
        """Record that whatever will be on record of a new folder was read since ``begun``.

        If this run is killed or cannot read everything, the next one looks at what changed since.
        """
        known = last_scan_of(path, self._store.places(LAST_SCAN)) is not None
        if not known and next(iter(self._store.paths(path)), None) is None:
            self._store.add_place(LAST_SCAN, format_scan_time(path, begun))

    def _index_pictures(self, files: list[ScannedFile]) -> None:
        with (
            self._files.read_files(self._pending(files)) as read,
            closing(self._files.encode_images(self._unrecognized(read))) as batches,
        ):
            for batch in batches:
                self._store_batch(batch)

    def _index_clips(self, files: list[ScannedFile]) -> None:
        if files and not can_read_clips():
            self._bad += [BadFile(file.path, MISSING_VIDEO_EXTRA) for file in files]
            return
        for file in self._unrecognized(map(self._files.read_file, self._pending(files))):
            self._store_batch([self._files.encode_clip(file)])

    def _pending(self, files: list[ScannedFile]) -> Iterator[ScannedFile]:
        """Yield the files whose signature is not on record when it is their turn."""
        chunks = [files[start : start + CHUNK_SIZE] for start in range(0, len(files), CHUNK_SIZE)]
        self._order.shuffle(chunks)
        for chunk in chunks:
            records = self._store.records([file.path for file in chunk])
            for file in chunk:
                record = records.get(file.path)
                if record is None or self._is_outdated(record, file):
                    if record is not None and record.error is None:
                        self._changed_paths.add(file.path)
                    yield file
                    continue
                if record.error is None:
                    self._counts["unchanged"] += 1
                    if self._thumbnails and not record.thumbnail:
                        self._add_thumbnail(file)
                self._advance(1)

    def _is_outdated(self, record: FileRecord, file: ScannedFile) -> bool:
        """Return whether a file changed, or was skipped for a reason that is none any more."""
        if self._again or record.signature != file.signature:
            return True
        error = record.error
        # Two files of equal size and time may have exchanged their names: their content decides.
        if error is None and file.path in self._touched:
            return True
        return error is not None and (is_passing(error) or self._files.limits.is_outdated(error))

    def _unrecognized(self, files: Iterable[HashedFile | BadFile]) -> Iterator[HashedFile]:
        """Yield the files whose content is not on record under any path."""
        for file in files:
            if isinstance(file, BadFile):
                self._retry_later(file)
            elif self._again or not self._recognize(file):
                yield file
                continue
            else:
                self._files.release(file)
            self._advance(1)

    def _recognize(self, hashed: HashedFile) -> bool:
        """Record a file without encoding it if its content is on record; return whether it is."""
        file, digest = hashed.file, hashed.content.digest
        path, signature = file.path, file.signature
        items = [item for item in self._store.items_with_content(digest) if item.kind == file.kind]
        if any(item.path == path for item in items):
            self._store.update_signature(path, signature)
            self._counts["unchanged"] += 1
            self._add_missing_thumbnail(file)
            return True
        for item in items:
            if is_missing(item.path) and not self._may_be_unmounted(item.path):
                self._store.move(item.path, path, signature)
                self._counts["moved"] += 1
                self._add_missing_thumbnail(file)
                return True
        # Only from a file that is still as it was indexed: libraries made by older versions may
        # hold the vectors of another file where two exchanged their names meanwhile.
        original = next((item for item in items if not _has_changed(item)), None)
        entry = self._store.entry(original.path) if original else None
        if entry is None:
            return False
        copy = replace(entry, item=replace(entry.item, path=path, signature=signature))
        self._store.put([copy])
        self._count(file)
        self._add_missing_thumbnail(file)
        return True

    def _may_be_unmounted(self, path: str) -> bool:
        """Return whether a file may be on a disk that is not mounted."""
        root = next((root for root in self._roots if is_within(path, root)), path)
        return root != path and not has_content(root)  # a disk's mount point counts as a root

    def _store_batch(self, batch: Sequence[Entry | BadFile]) -> None:
        entries = [file for file in batch if isinstance(file, Entry)]
        bad = [file for file in batch if isinstance(file, BadFile)]
        if entries:
            if self._again:  # else an item of the same content keeps its vectors
                self._store.delete([entry.item.path for entry in entries])
            self._store.put([_with_place(entry) for entry in entries])
            for entry in entries:
                self._count(entry.item)
        recorded = [file for file in bad if file.signature or file.reason == NO_FEATURES]
        if recorded:
            self._store.put_bad_files(recorded)
        for file in bad:
            if file.reason == NO_FEATURES:
                self._bad.append(file)
            elif file.signature is None:
                self._retry_later(file)
        self._advance(len(batch))

    def _retry_later(self, file: BadFile) -> None:
        """Report a file that cannot be read now; what is on record of it stays."""
        self._unread = True
        self._bad.append(replace(file, reason=f"{file.reason}: the next run tries it again"))

    def _count(self, file: ScannedFile | Item) -> None:
        self._counts["changed" if file.path in self._changed_paths else "added"] += 1

    def _add_missing_thumbnail(self, file: ScannedFile) -> None:
        """Add the thumbnail of a file on record that has none, if thumbnails are wanted."""
        if self._thumbnails and not self._store.records([file.path])[file.path].thumbnail:
            self._add_thumbnail(file)

    def _add_thumbnail(self, file: ScannedFile) -> None:
        thumbnail = self._files.make_thumbnail(file)
        if isinstance(thumbnail, BadFile):
            self._bad.append(thumbnail)
            return
        digest, content = thumbnail
        if any(item.path == file.path for item in self._store.items_with_content(digest)):
            self._store.put_thumbnail(file.path, content)

    def _delete_missing(self, root: str, files: dict[str, ScannedFile]) -> int:
        """Delete what is on record of files that no longer exist; return how many."""
        missing = [
            path
            for path in self._store.paths(root)
            if path not in files
            and not any(is_within(path, folder) for folder in self._unreadable)
            and is_missing(path)
        ]
        for place in sorted({root, *self._store.places(MOUNTED)}, key=len):
            inside = [path for path in missing if is_within(path, place)]
            # Looked at again, after the files: a disk may go at any moment.
            if inside not in ([], [root]) and self._is_away(place, root):
                missing = sorted(set(missing).difference(inside))
                self._bad.append(
                    BadFile(
                        place,
                        "is empty or missing: is a disk not mounted? Its"
                        f" {len(inside):,} files stay in the library; `polyglance library remove`"
                        " takes them out",
                    )
                )
        return delete_in_batches(self._store, missing)

    def _is_away(self, place: str, root: str) -> bool:
        """Return whether a folder, which was there, may be a disk that is not mounted."""
        try:
            return not has_content(place) or (place != root and not is_mount(place))
        except PolyglanceError:  # it cannot be listed
            return True


def _has_changed(item: Item) -> bool:
    """Return whether the file of an item is there and is not as it was indexed."""
    try:
        status = os.stat(item.path)
    except OSError:
        return False
    return FileSignature(status.st_size, status.st_mtime_ns) != item.signature


def delete_in_batches(store: Store, paths: Sequence[str]) -> int:
    """Delete what is on record of files, in several transactions; return how many items."""
    return sum(
        store.delete(paths[start : start + DELETE_SIZE])
        for start in range(0, len(paths), DELETE_SIZE)
    )


def _with_place(entry: Entry) -> Entry:
    return replace(entry, details=with_place(entry.details)) if entry.details else entry
