"""Run work in background threads ahead of the consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

THREADS = 2


@contextmanager
def prefetch(
    work: Callable[[T], U], jobs: Iterable[T], depth: int, *, threads: int = THREADS
) -> Iterator[Iterator[U]]:
    """Yield an iterator over ``work(job)`` in the order of the jobs, computed in advance.

    Leaving the context early, also by Ctrl-C, cancels jobs that have not begun.

    Args:
        work: Called in a background thread.
        jobs: Its arguments, drawn lazily.
        depth: Maximum number of results computed ahead of the consumer.
        threads: Number of background threads.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="prefetch")
    waiting: deque[Future[U]] = deque()

    def results() -> Iterator[U]:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield results()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
