"""Progress of long work, on standard error, so that output can still be piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(
    what: str, total: int | None, *, done: int = 0, quiet: bool = False
) -> Iterator[Advance]:
    """Show a bar while long work runs; the yielded function moves it by so many steps.

    ``done`` steps were finished by an earlier run. Nothing is drawn where
    nobody looks: with ``quiet``, or when standard error is not a terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda steps: None
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
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda steps: bar.advance(task, steps)
