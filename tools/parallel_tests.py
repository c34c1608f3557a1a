"""Run tests in processes that are forked from one that has imported everything.

    python -m tools.parallel_tests --workers 4 tests/objectives

A worker of pytest-xdist takes ten seconds to import what the tests import, torch above all. Here
one process collects the tests, by which it imports all of that; its forks find it in memory.
Arguments but ``--workers`` are pytest's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from execnet import gateway_io

_NO_THREADS = {"ORT_DISABLE_TELEMETRY": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Without these variables, onnxruntime and pyarrow begin a thread each when they are imported."""


class ForkedWorker:
    """A process that waits for work of pytest-xdist; execnet uses it like a `subprocess.Popen`."""

    def __init__(self, earlier: Sequence[ForkedWorker]) -> None:
        """Fork this process.

        Args:
            earlier: Workers whose pipes the new one must not hold open.
        """
        for_worker, to_worker = os.pipe()
        from_worker, by_worker = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(to_worker)
            os.close(from_worker)
            for worker in earlier:
                worker.stdin.close()
                worker.stdout.close()
            _work(for_worker, by_worker)
        os.close(for_worker)
        os.close(by_worker)
        self.stdin = os.fdopen(to_worker, "wb")
        self.stdout = os.fdopen(from_worker, "rb")

    def wait(self) -> int:
        """Return the exit status when the worker has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def kill(self) -> None:
        """End the worker at once."""
        os.kill(self._pid, signal.SIGKILL)


def _work(for_worker: int, by_worker: int) -> NoReturn:
    """Do what ``python -c`` does with the line that execnet sends first, then exit."""
    os.dup2(for_worker, 0)
    os.dup2(by_worker, 1)
    os.close(for_worker)
    os.close(by_worker)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.argv = ["-c"]
    # Processes that tests spawn import the main module of their parent: here is none to import.
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    sys.exit()


def fork_workers(number: int) -> None:
    """Fork workers now, which execnet takes when it is asked to start some."""
    waiting: list[ForkedWorker] = []
    for _ in range(number):
        waiting.append(ForkedWorker(waiting))
    start = gateway_io.create_io

    def create_io(spec: Any, execmodel: Any) -> Any:
        if not waiting:  # a test ended its worker, and another takes its place
            return start(spec, execmodel)
        io = gateway_io.Popen2IOMaster.__new__(gateway_io.Popen2IOMaster)
        io.popen = waiting.pop()
        gateway_io.Popen2IO.__init__(io, io.popen.stdin, io.popen.stdout, execmodel=execmodel)
        return io

    gateway_io.create_io = create_io


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tests and return pytest's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, required=True)
    known, others = parser.parse_known_args(arguments)
    os.environ |= _NO_THREADS
    # An error here is one of the tests, which report it.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", *others])
    for name in _NO_THREADS:
        del os.environ[name]
    # Of a process with several threads, a fork has one, and locks that the others held.
    if sys.platform == "linux" and len(list(Path("/proc/self/task").iterdir())) == 1:
        fork_workers(known.workers)
    else:
        print("workers import everything once more: this process cannot be forked")
    return int(pytest.main(["-n", str(known.workers), "--dist", "worksteal", *others]))


if __name__ == "__main__":
    sys.exit(main())
