"""Concurrency limits for work that takes a core or much memory."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar

import anyio.to_thread

from polyglance.serve.errors import HTTPProblem

T = TypeVar("T")

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The client of the current request (`polyglance.serve.proxies.client_group`)."""
_ALL_WAITING = 4
"""All clients together may wait with this many times the requests of one."""


class Overloaded(HTTPProblem):
    """Too many requests are waiting."""

    def __init__(self) -> None:
        super().__init__(
            503, "Too many requests are waiting: try again in a moment.", {"retry-after": "2"}
        )


class ConcurrencyLimiter:
    """A number of slots with a bounded queue in front of them.

    Clients take turns, so that one who sends many requests delays another by one of them at most.
    """

    def __init__(
        self, slots: int, *, max_waiting: int, timeout: float = 20.0, per_client: int | None = None
    ) -> None:
        """Create the limiter.

        Args:
            slots: How many requests may run at once.
            max_waiting: How many more of one client may wait for a slot.
            timeout: Seconds that a request waits for a slot.
            per_client: How many requests of one client may run at once; default: all.
        """
        self._free, self._threads = slots, anyio.CapacityLimiter(slots)
        self._max_waiting, self._timeout = max_waiting, timeout
        self._per_client = slots if per_client is None else per_client
        self._running: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it; raise `Overloaded` if the queue is full or too slow."""
        client = CLIENT.get()
        if self._free and self._running[client] < self._per_client:
            self._take(client)
        else:
            await self._wait(client)
        try:
            yield
        finally:
            self._release(client)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Run ``work(*args)`` in a thread while holding a slot."""
        async with self.slot():
            return await anyio.to_thread.run_sync(work, *args, limiter=self._threads)

    async def _wait(self, client: str) -> None:
        waiting = sum(map(len, self._queues.values()))
        own = len(self._queues.get(client, ()))
        if own >= self._max_waiting or waiting >= _ALL_WAITING * self._max_waiting:
            raise Overloaded
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(turn)
        try:
            async with asyncio.timeout(self._timeout):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self._release(client)
            else:
                self._leave(client, turn)
            if isinstance(error, TimeoutError):
                raise Overloaded from None
            raise

    def _leave(self, client: str, turn: asyncio.Future[None]) -> None:
        """Take a request that gave up out of its queue."""
        turn.cancel()
        queue = self._queues.get(client, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[client]

    def _take(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _release(self, client: str) -> None:
        """Free a slot, and give free slots to the clients whose turn it is."""
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        for other in list(self._queues):
            if not self._free:
                return
            if self._running[other] < self._per_client:
                self._pass_on(other)

    def _pass_on(self, client: str) -> None:
        """Give a slot to the first waiting request of a client, who then is last in turn."""
        queue = self._queues[client]
        turn = queue.popleft()
        while turn.done() and queue:  # cancelled a moment ago
            turn = queue.popleft()
        if queue:
            self._queues.move_to_end(client)
        else:
            del self._queues[client]
        if not turn.done():
            self._take(client)
            turn.set_result(None)
