"""Processes that this one starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def exit_with_parent() -> None:
    """Exit this worker when its parent dies, so that it stops writing files."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class SpawnPool(ProcessPoolExecutor):
    """Worker processes that end with this one, and that Ctrl-C does not reach.

    Ctrl-C is for the process that asks. A worker that is interrupted while it imports prints a
    traceback before any code of its own could prevent that, so the signal is blocked when a
    worker starts, which it inherits. An exception in a ``with`` block of the pool, such as that
    of Ctrl-C, ends the workers at once: what they write must bear that.
    """

    def __init__(self, workers: int) -> None:
        # A forked process could use no accelerator, and would inherit the locks of threads.
        context = multiprocessing.get_context("spawn")
        super().__init__(workers, mp_context=context, initializer=exit_with_parent)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; the first ones start the workers."""
        with _interrupts_blocked():
            return super().submit(fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Wait for the workers' end; after an exception, end them first."""
        if kind is not None:
            for process in list((self._processes or {}).values()):
                process.kill()
        self.shutdown(wait=True, cancel_futures=kind is not None)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let Ctrl-C take effect at the end of the block, and never in processes started within."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # which unblocks the signal when it starts
    in_main = threading.current_thread() is threading.main_thread()
    came: list[int] = []  # through another thread, which has no such mask
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if in_main else 0
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, handler)
            if came:
                signal.raise_signal(signal.SIGINT)
