"""Count the cores that this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux, where a process may be bound to some of them
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
