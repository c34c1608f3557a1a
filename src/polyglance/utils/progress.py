"""Progress bars on standard error, so that output can still be piped."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Advance = Callable[[int], None]
"""Advances a progress bar by a number of steps."""
ProgressCallback = Callable[[int, int], None]
"""Takes the number of steps done and the number of all."""


class AdvanceWithStatus(Protocol):
    """Advances a progress bar, and may say more after it."""

    def __call__(self, steps: int, status: str | None = None, /) -> None:
        """Advance by a number of steps; a ``status`` replaces the text after the bar."""


def report_to(advance: AdvanceWithStatus, callback: ProgressCallback, total: int) -> Advance:
    """Return a function that advances a bar and calls a user's function, which is told 0 now.

    Args:
        advance: Advances the bar.
        callback: Called with the steps done and ``total``, by one thread at a time.
        total: Number of steps.
    """
    done, lock = 0, threading.Lock()

    def both(steps: int) -> None:
        nonlocal done
        with lock:
            advance(steps)
            done += steps
            callback(done, total)

    callback(0, total)
    return both


@contextmanager
def progress(
    description: str, total: int | None, *, completed: int = 0, quiet: bool = False
) -> Iterator[AdvanceWithStatus]:
    """Show a progress bar; yield a function that advances it by a number of steps.

    Nothing is drawn if standard error is not a terminal.

    Args:
        description: Text before the bar.
        total: Number of steps, or None if unknown.
        completed: Steps that an earlier run completed.
        quiet: Draw nothing.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda steps, status=None, /: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total, completed=completed, status="")

        def advance(steps: int, status: str | None = None, /) -> None:
            bar.advance(task, steps)
            if status is not None:
                bar.update(task, status=status)

        yield advance
