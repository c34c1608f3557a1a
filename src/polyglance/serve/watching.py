"""Watch the library's folders, and index files that are new or changed once they are complete.

Changes come from the operating system (the package watchfiles), or where that cannot watch from
looking at all files every half minute. A file that somebody copies or records at the moment is
left alone until its size and time have stayed the same for a while.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias

from polyglance.search.library import Library
from polyglance.search.scan import CLIP_SUFFIXES, IMAGE_SUFFIXES, ScannedFile, is_within, scan
from polyglance.search.store import FileSignature
from polyglance.serve.scanning import ScanRunner

log = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
"""How long a file must stay the same before it is indexed."""
TICK_SECONDS = 0.5
POLL_SECONDS = 30.0
"""Between two looks at all files, where the system does not report changes."""
MAX_PENDING = 10_000
"""With more changed files all folders are scanned instead."""

Changes: TypeAlias = "Iterator[Iterable[str]]"
"""Paths that changed, again and again; nothing changed where it is empty."""


class Settling:
    """Files that changed, until they stay the same."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending: dict[str, tuple[FileSignature | None, float]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, paths: Iterable[str]) -> None:
        """Note that files, or all files of folders, changed or are gone."""
        now = self._clock()
        for path in paths:
            files = _files_of(path) if os.path.isdir(path) else [path]  # noqa: PTH112
            for file in files:
                self._pending[file] = (_signature(file), now)

    def take(self) -> tuple[list[str], list[str]]:
        """Return the files that have stayed the same for a while, and those that are gone."""
        now, ready, gone = self._clock(), list[str](), list[str]()
        for path, (before, since) in list(self._pending.items()):
            signature = _signature(path)
            if signature != before:
                self._pending[path] = (signature, now)
            elif now - since >= SETTLE_SECONDS:
                del self._pending[path]
                (gone if signature is None else ready).append(path)
        return ready, gone

    def clear(self) -> None:
        """Forget all."""
        self._pending.clear()


class FolderWatcher:
    """A thread that watches the confirmed folders of a library."""

    def __init__(self, library: Library, scans: ScanRunner) -> None:
        """Watch nothing yet; `start` does."""
        self._library, self._scans = library, scans
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def watching(self) -> bool:
        """Whether folders are watched."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to watch, and catch up with what changed before."""
        with self._lock:
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="watch", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None:
            thread.join(10.0)

    def restart(self) -> None:
        """Watch the folders that the library has now, if any are watched."""
        if self.watching:
            self.stop()
            self.start()

    def _run(self, stop: threading.Event) -> None:
        try:
            folders = self._scans.folders
            if folders:
                self._scans.scan_all()
            settling = Settling()
            for changed in watch(folders, stop):
                settling.add(path for path in changed if _is_media(path, folders))
                self._index(settling, folders)
        except Exception:
            log.exception("the folders are not watched any more")

    def _index(self, settling: Settling, folders: list[str]) -> None:
        """Index what has settled."""
        if len(settling) > MAX_PENDING:
            settling.clear()
            self._scans.scan_all()
            return
        ready, gone = settling.take()
        # A folder may be gone because its disk is: only a scan of all of it can tell.
        roots = {folder for path in gone for folder in folders if is_within(path, folder)}
        ready = [path for path in ready if not any(is_within(path, root) for root in roots)]
        if ready or roots:
            self._scans.refresh([*sorted(roots), *ready])


def watch(folders: list[str], stop: threading.Event) -> Changes:
    """Yield the paths that change in folders, at least twice a second, until ``stop`` is set."""
    try:
        from watchfiles import watch as watch_by_system
    except ModuleNotFoundError:
        yield from poll(folders, stop)
        return
    existing = [folder for folder in folders if os.path.exists(folder)]  # noqa: PTH110
    try:
        if not existing:
            raise FileNotFoundError
        for changes in watch_by_system(
            *existing,
            watch_filter=None,
            debounce=int(1000 * TICK_SECONDS),
            rust_timeout=int(1000 * TICK_SECONDS),
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
        ):
            yield [path for _, path in changes]
    except (OSError, RuntimeError) as error:  # too many folders for the system, or none
        if not isinstance(error, FileNotFoundError):
            log.warning("folders are looked at every %d seconds (%s)", POLL_SECONDS, error)
        yield from poll(folders, stop)


def poll(folders: list[str], stop: threading.Event, seconds: float = POLL_SECONDS) -> Changes:
    """Yield the paths that change in folders, by looking at all files now and then.

    Args:
        folders: The folders.
        stop: Ends it.
        seconds: How long to wait between two looks.
    """
    known, next_look = _look(folders), time.monotonic() + seconds
    while not stop.wait(TICK_SECONDS):
        changed: list[str] = []
        if time.monotonic() >= next_look:
            before, known = known, _look(folders)
            changed = [
                path for path in before.keys() | known.keys() if before.get(path) != known.get(path)
            ]
            next_look = time.monotonic() + seconds
        yield changed


def _look(folders: list[str]) -> dict[str, FileSignature]:
    return {
        file.path: file.signature
        for folder in folders
        if os.path.exists(folder)  # noqa: PTH110 (unlike Path.exists it never raises)
        for file in scan(folder)
        if isinstance(file, ScannedFile)
    }


def _files_of(folder: str) -> list[str]:
    return [file.path for file in scan(folder) if isinstance(file, ScannedFile)]


def _is_media(path: str, folders: list[str]) -> bool:
    """Return whether a scan of the folders may find a path: no hidden files, nor other kinds."""
    root = max((folder for folder in folders if is_within(path, folder)), key=len, default=None)
    if root is None or any(part.startswith(".") for part in path[len(root) :].split("/")):
        return False
    if os.path.isdir(path):  # noqa: PTH112
        return True
    suffix = os.path.splitext(path)[1].lower()  # noqa: PTH122
    return (
        suffix in IMAGE_SUFFIXES | CLIP_SUFFIXES or not suffix
    )  # what is gone may have been a folder


def _signature(path: str) -> FileSignature | None:
    with suppress(OSError, ValueError):
        status = os.stat(path)
        return FileSignature(status.st_size, status.st_mtime_ns)
    return None
