"""Run tasks on untrusted files in processes with limits.

A file that makes a decoder allocate, loop or crash takes down one process, which costs that
file alone: the next task gets a new process. Processes are kept for the next task, since one
takes a quarter of a second to start; one without a task ends itself after a minute.

Where the kernel has no such limits (Windows; on macOS none on memory), wall-clock time is
still limited.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.utils.worker_process import LENGTHS, SHARED_SIZE, read_exactly, write_message

T = TypeVar("T")
Content = bytearray | memoryview
Message = tuple[dict[str, Any], Content]
Cause = Literal["content", "read", "memory", "seconds", "crash", "killed"]

PIPE_SIZE = 1 << 20
MAX_HEADER = 1 << 20
_NO_ANSWER = "the process did not answer as it should"
START_SECONDS = 120.0
"""Wall-clock time for a process to start, on a busy machine."""
_FROM_OUTSIDE = {
    -getattr(signal, name)
    for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
    if hasattr(signal, name)
}
"""Exit statuses of a process that somebody stopped, such as the kernel when memory is short."""


def wall_seconds(seconds: float) -> float:
    """Return the wall-clock time for a reply, on a busy machine."""
    return 60 + 20 * seconds


_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # Glibc's other arenas take address space, which is limited, for each thread.
    "MALLOC_ARENA_MAX": "1",
    # Memory of one picture is kept for the next: to get it anew costs a quarter of decoding.
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "134217728",
    "MALLOC_TOP_PAD_": "16777216",
}


class TaskError(DataError):
    """A task that failed, and why."""

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause: Cause = cause


class WorkerPool:
    """Processes that run tasks; threads may share a pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._watchdog: threading.Thread | None = None
        self._changed = threading.Condition(self._lock)

    def run(
        self,
        task: str,
        settings: dict[str, Any],
        payload: bytes = b"",
        *,
        memory: int,
        seconds: float,
        max_reply: int,
        convert: Callable[[dict[str, Any], Content], T],
    ) -> T:
        """Run a task that gives one reply, and return what ``convert`` makes of it; see `stream`.

        The content that ``convert`` is given is memory that the next task overwrites.
        """
        replies = self._stream(task, settings, payload, memory, seconds, max_reply, one_reply=True)
        results = [convert(header, content) for header, content in replies]
        if len(results) != 1:
            raise TaskError("crash", _NO_ANSWER)
        return results[0]

    def stream(
        self,
        task: str,
        settings: dict[str, Any],
        payload: bytes = b"",
        *,
        memory: int,
        seconds: float,
        max_reply: int,
    ) -> Generator[Message]:
        """Run a task in a process and yield its replies.

        Args:
            task: The function, as ``module:function``; see `polyglance.utils.worker_process`.
            settings: What it is given, as JSON.
            payload: What it is given, as bytes.
            memory: Bytes that it may take beside the payload.
            seconds: CPU time that it may take; a task may allow itself more.
            max_reply: Bytes of the longest reply.

        Yields:
            The header and the payload of each reply. A `TaskError` says what went wrong.
        """
        yield from self._stream(
            task, settings, payload, memory, seconds, max_reply, one_reply=False
        )

    def _stream(
        self,
        task: str,
        settings: dict[str, Any],
        payload: bytes,
        memory: int,
        seconds: float,
        max_reply: int,
        *,
        one_reply: bool,
    ) -> Generator[Message]:
        request = {
            "task": task,
            "settings": settings,
            "memory": memory,
            "seconds": seconds,
            "one_reply": one_reply,
        }
        patience = wall_seconds(seconds)
        for attempt in (1, 2):
            with self._lease() as worker:
                try:
                    worker.send(request, payload, patience)
                    reply = worker.receive(patience, max_reply)
                except (EOFError, OSError):
                    if worker.ended() == 0 and attempt == 1:
                        continue  # it ended itself just before it was asked
                    raise worker.failure(seconds, patience) from None
                while True:
                    end = reply[0].get("end")
                    if end is None or "shared" in reply[0]:
                        yield reply
                    if end == "done":
                        worker.is_reusable = True
                        return
                    if end is not None:
                        worker.is_reusable = end in ("content", "read")
                        raise TaskError(end, str(reply[0].get("reason", "")))
                    try:
                        reply = worker.receive(patience, max_reply)
                    except (EOFError, OSError):
                        raise worker.failure(seconds, patience) from None

    def close(self) -> None:
        """End the processes that have no task."""
        with self._lock:
            workers, self._free = self._free, []
        for worker in workers:
            worker.stop()

    @contextmanager
    def _lease(self) -> Iterator[_Worker]:
        """Take a free process or start one; it is kept if its task ended well."""
        worker = None
        with self._lock:
            while self._free and worker is None:
                worker = self._free.pop()
                if worker.ended() is not None:
                    worker.stop()
                    worker = None
        worker = worker or _Worker()
        worker.is_reusable = False
        with self._changed:
            self._busy.add(worker)
            if self._watchdog is None:
                self._watchdog = threading.Thread(
                    target=self._watch, name="worker-watchdog", daemon=True
                )
                self._watchdog.start()
            self._changed.notify()
        try:
            yield worker
        finally:
            with self._lock:
                self._busy.discard(worker)
                if worker.is_reusable:
                    self._free.append(worker)
            if not worker.is_reusable:
                worker.stop()

    def _watch(self) -> None:
        """Kill processes that have not answered in time."""
        while True:
            with self._changed:
                while not self._busy:
                    self._changed.wait()
                overdue = [worker for worker in self._busy if time.monotonic() > worker.deadline]
            for worker in overdue:
                worker.expire()
            time.sleep(1)


class _Worker:
    """A process, and the pipes to it."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "polyglance.utils.worker_process"]
        self._shared, descriptor = _share_memory()
        if descriptor is not None:
            command.append(str(descriptor))
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
                pass_fds=() if descriptor is None else (descriptor,),
            )
        except OSError as error:
            raise PolyglanceError(
                f"no process can be started to decode files ({error_reason(error)}): free memory,"
                " or raise the limit on processes"
            ) from error
        finally:
            if descriptor is not None:
                os.close(descriptor)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        for pipe in (self._in, self._out):
            _enlarge(pipe.fileno())
        self.is_reusable, self.deadline, self._expired = False, float("inf"), False
        self._is_ready = False

    def send(self, header: dict[str, Any], payload: bytes, patience: float) -> None:
        if not self._is_ready:
            self._wait_until_ready()
        self.deadline = time.monotonic() + patience
        if self._shared is None or len(payload) > SHARED_SIZE:
            write_message(self._in, {**header, "shared": None}, payload)
        else:
            self._shared[: len(payload)] = payload
            write_message(self._in, {**header, "shared": len(payload)})

    def receive(self, patience: float, max_reply: int) -> Message:
        self.deadline = time.monotonic() + patience
        head, size = LENGTHS.unpack(read_exactly(self._out, LENGTHS.size))
        if head > MAX_HEADER or size > max_reply:
            raise TaskError("crash", _NO_ANSWER)
        try:
            header = json.loads(read_exactly(self._out, head))
        except ValueError:
            raise TaskError("crash", _NO_ANSWER) from None
        content: Content = read_exactly(self._out, size)
        if self._shared is not None and "shared" in header:
            if not 0 <= header["shared"] <= min(max_reply, SHARED_SIZE):
                raise TaskError("crash", _NO_ANSWER)
            content = memoryview(self._shared)[: header["shared"]]
        self.deadline = float("inf")  # the reader of replies may take any time
        return header, content

    def _wait_until_ready(self) -> None:
        try:
            self.receive(START_SECONDS, 0)
        except (EOFError, OSError):
            self.stop(wait=True)
            raise PolyglanceError(
                "the process that decodes files does not start (exit status"
                f" {self._process.returncode}): free memory, or install Polyglance again"
            ) from None
        self._is_ready = True

    def ended(self) -> int | None:
        """Return the exit status, or None if the process runs."""
        if self._out.closed:
            return self._process.returncode
        return self._process.poll()

    def failure(self, seconds: float, patience: float) -> TaskError:
        """Return why the process ended in the middle of a task."""
        self.stop(wait=not self._expired)
        status = self._process.returncode
        if self._expired and not hasattr(signal, "SIGXCPU"):
            return TaskError("seconds", f"{patience:g} s")
        if self._expired:
            return TaskError("killed", f"it took longer than {patience:g} s, on a busy machine")
        if hasattr(signal, "SIGXCPU") and status == -signal.SIGXCPU:
            return TaskError("seconds", f"{seconds:g} s of CPU time")
        if status in _FROM_OUTSIDE:
            return TaskError("killed", "the decoding process was stopped; is memory short?")
        return TaskError("crash", "the decoder crashes on it")

    def expire(self) -> None:
        """Kill the process, which has not answered in time."""
        self._expired = True
        self._process.kill()

    def stop(self, *, wait: bool = False) -> None:
        """End the process; with ``wait``, one that is ending by itself."""
        for pipe in (self._in, self._out):
            with suppress(OSError):
                pipe.close()
        if wait:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._shared is not None:
            with suppress(BufferError):  # still in use: freed with the last use
                self._shared.close()


def _share_memory() -> tuple[mmap.mmap | None, int | None]:
    """Return memory to share with a process, and its file descriptor, where the system can."""
    if not hasattr(os, "memfd_create"):
        return None, None
    try:
        descriptor = os.memfd_create("polyglance")
    except OSError:
        return None, None
    os.ftruncate(descriptor, SHARED_SIZE)
    return mmap.mmap(descriptor, SHARED_SIZE), descriptor


def _enlarge(pipe: int) -> None:
    """Enlarge a pipe where the system can: fewer switches between the processes."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


_shared = WorkerPool()


def shared_pool() -> WorkerPool:
    """Return the pool of this process."""
    return _shared


def _renew() -> None:
    """Forget the parent's processes after a fork."""
    global _shared
    _shared = WorkerPool()


atexit.register(lambda: _shared.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
