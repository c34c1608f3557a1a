"""Index folders in the background, one scan at a time, and say how far it is."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from polyglance.errors import PolyglanceError
from polyglance.search.indexing import IndexReport
from polyglance.search.library import Library
from polyglance.search.scan import is_within

log = logging.getLogger(__name__)

State: TypeAlias = Literal["idle", "scanning", "done", "stopped", "failed"]
Job: TypeAlias = "Callable[[Callable[[int, int], None]], IndexReport]"
"""Indexes something, and calls back with the number of files done and of all."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan that runs, or the last one that did."""

    id: int = 0
    """Rises with every scan."""
    state: State = "idle"
    done: int = 0
    total: int | None = None
    """How many files there are, once they were counted."""
    report: IndexReport = field(default_factory=IndexReport)
    """What was done, at the end."""
    started: datetime | None = None
    finished: datetime | None = None
    error: str | None = None


class _Stopped(Exception):  # noqa: N818 (raised to end a scan, not for a mistake)
    """A scan was asked to stop."""


class ScanRunner:
    """Runs scans of a library in a thread. Threads may share it."""

    def __init__(self, library: Library, on_end: Callable[[], None] = lambda: None) -> None:
        """Scan a library.

        Args:
            library: What to scan.
            on_end: Called after each scan, before anyone learns that it has ended.
        """
        self._library, self._on_end = library, on_end
        self._condition = threading.Condition()
        self._scan, self._version = Scan(), 0
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def current(self) -> Scan:
        """The scan that runs, or the last one."""
        with self._condition:
            return self._scan

    @property
    def folders(self) -> list[str]:
        """The folders of the library whose owner confirmed them: no others are scanned."""
        confirmed = self._library.confirmed
        return [
            folder
            for folder in self._library.folders
            if any(is_within(folder, other) for other in confirmed)
        ]

    def scan_all(self) -> Scan:
        """Scan all folders of the library, unless a scan runs; return the scan."""
        with self._condition:
            if self._scan.state == "scanning":
                return self._scan
        return self._start(
            lambda progress: self._library.refresh(
                *self.folders, thumbnails=self._thumbnails, progress=progress
            )
        )

    def add(self, folder: str) -> Scan:
        """Add a folder to the library and scan it; return the scan that runs."""
        return self.refresh(self._library.include(folder))

    def refresh(self, paths: Sequence[str]) -> Scan:
        """Index files of the library's folders that changed; return the scan that runs."""
        return self._start(
            lambda progress: self._library.refresh(
                *paths, thumbnails=self._thumbnails, progress=progress
            )
        )

    def stop(self, timeout: float = 0.0) -> Scan:
        """Ask scans to stop, and wait until they did; what was indexed stays."""
        with self._condition:
            self._jobs.clear()
            self._stopping = self._scan.state == "scanning"
            self._condition.wait_for(lambda: self._scan.state != "scanning", timeout)
            return self._scan

    @property
    def _thumbnails(self) -> bool:
        """Whether the library has thumbnails, or is new."""
        counts = self._library.info().counts
        return counts.thumbnails > 0 or counts.pictures + counts.clips == 0

    def wait(self, version: int, timeout: float) -> tuple[int, Scan]:
        """Wait until something changed since a version; return the version and the scan.

        Args:
            version: What an earlier call returned; 0 at first.
            timeout: Seconds to wait.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._version != version, timeout)
            return self._version, self._scan

    def wait_until_idle(self, timeout: float) -> Scan:
        """Wait until no scan runs; return the last one."""
        with self._condition:
            self._condition.wait_for(lambda: self._thread is None, timeout)
            return self._scan

    def _start(self, job: Job) -> Scan:
        with self._condition:
            self._jobs.append(job)
            if self._thread is None:
                self._next_scan()
                self._thread = threading.Thread(target=self._run, name="scan", daemon=True)
                self._thread.start()
            return self._scan

    def _next_scan(self) -> None:
        self._stopping = False
        number = self._scan.id + 1
        self._set(Scan(number, "scanning", started=datetime.now(UTC).replace(microsecond=0)))

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._jobs:
                    self._thread = None
                    self._condition.notify_all()
                    return
                job = self._jobs.popleft()
                if self._scan.state != "scanning":
                    self._next_scan()
            result = self._run_one(job)
            self._on_end()
            with self._condition:
                finished = datetime.now(UTC).replace(microsecond=0)
                self._set(replace(result, finished=finished))

    def _run_one(self, job: Job) -> Scan:
        try:
            report = job(self._advance)
            return replace(self.current, state="done", report=report)
        except _Stopped:
            return replace(self.current, state="stopped")
        except PolyglanceError as error:
            return replace(self.current, state="failed", error=str(error))
        except Exception:
            log.exception("a scan failed")
            return replace(self.current, state="failed", error="internal error: see the log")

    def _advance(self, done: int, total: int) -> None:
        with self._condition:
            if self._stopping:
                raise _Stopped
            self._set(replace(self._scan, done=done, total=total))

    def _set(self, scan: Scan) -> None:
        with self._condition:
            self._scan, self._version = scan, self._version + 1
            self._condition.notify_all()
