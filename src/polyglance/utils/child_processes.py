"""Processes that this one starts."""

from __future__ import annotations

import multiprocessing
import os
import threading


def exit_with_parent() -> None:
    """Exit this worker when its parent dies, so that it stops writing files."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
