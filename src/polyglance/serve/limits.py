"""Concurrency limits for work that takes a core or much memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio.to_thread

from polyglance.serve.errors import HTTPProblem

T = TypeVar("T")


class Overloaded(HTTPProblem):
    """Too many requests are waiting."""

    def __init__(self) -> None:
        super().__init__(
            503, "Too many requests are waiting: try again in a moment.", {"retry-after": "2"}
        )


class ConcurrencyLimiter:
    """A number of slots with a bounded queue in front of them."""

    def __init__(self, slots: int, *, max_waiting: int, timeout: float = 20.0) -> None:
        """Create the limiter.

        Args:
            slots: How many requests may run at once.
            max_waiting: How many more may wait for a slot.
            timeout: Seconds that a request waits for a slot.
        """
        self._slots, self._threads = asyncio.Semaphore(slots), anyio.CapacityLimiter(slots)
        self._max_waiting, self._timeout, self._waiting = max_waiting, timeout, 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it; raise `Overloaded` if the queue is full or too slow."""
        if self._waiting >= self._max_waiting:
            raise Overloaded
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Run ``work(*args)`` in a thread while holding a slot."""
        async with self.slot():
            return await anyio.to_thread.run_sync(work, *args, limiter=self._threads)
