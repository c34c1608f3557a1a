"""Work that threads do ahead of who needs it."""

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
def ahead(work: Callable[[T], U], jobs: Iterable[T], depth: int) -> Iterator[Iterator[U]]:
    """Results of ``work`` in the order of the jobs, up to ``depth`` of them ready in advance.

    Leaving early, by Ctrl-C too, drops what has not begun.
    """
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ahead")
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
