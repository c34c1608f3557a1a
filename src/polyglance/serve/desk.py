"""Work that takes a core or memory: so much at once, so much waiting, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio.to_thread

from polyglance.serve.problems import Refused

T = TypeVar("T")


class Busy(Refused):
    """Too many are waiting already."""

    def __init__(self) -> None:
        super().__init__(
            503, "Too many requests are waiting: try again in a moment.", {"retry-after": "2"}
        )


class Desk:
    """Some seats and a queue of bounded length before them."""

    def __init__(self, seats: int, *, waiting: int, patience: float = 20.0) -> None:
        """``patience`` is how many seconds one waits for a seat."""
        self._seats, self._threads = asyncio.Semaphore(seats), anyio.CapacityLimiter(seats)
        self._most, self._patience, self._waiting = waiting, patience, 0

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[None]:
        """Wait for a seat and keep it; a `Busy` where the queue is too long or too slow."""
        if self._waiting >= self._most:
            raise Busy
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await self._seats.acquire()
        except TimeoutError:
            raise Busy from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._seats.release()

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Do work in a thread, on a seat."""
        async with self.seat():
            return await anyio.to_thread.run_sync(work, *given, limiter=self._threads)
