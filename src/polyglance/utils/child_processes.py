"""Processes that this one starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


def exit_with_parent() -> None:
    """Exit this worker when its parent dies, so that it stops writing files."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def interrupts_kept_from_children() -> Iterator[None]:
    """Keep Ctrl-C from the processes that this thread starts within, from their first moment.

    A process that is interrupted while it imports prints a traceback, before any code of its own
    could prevent that. Here, Ctrl-C takes effect at the end of the block.
    """
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
