"""Concurrency limits for work that takes a core or much memory."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import anyio.to_thread

from polyglance.serve.errors import HTTPProblem

T = TypeVar("T")

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The client of the current request (`polyglance.serve.proxies.client_group`)."""
_ALL_WAITING = 4
"""All clients together may wait with this many times the requests of one."""
_DECAY_SECONDS = 10.0
"""After which work counts a third (1/e) of what it took."""
_RECENT_SECONDS = 30.0
"""How long a client counts as present after its last request."""
_FREE_SECONDS = 0.5
"""Recent work with which a client is not heavy yet: a page of thumbnails, or 20 searches."""
_YIELD_SECONDS = 1.0
"""After which a heavy client may start a request again, whoever else has one running."""
_MAX_CLIENTS = 10_000
"""Clients to remember."""


class Overloaded(HTTPProblem):
    """Too many requests are waiting."""

    def __init__(self) -> None:
        super().__init__(
            503, "Too many requests are waiting: try again in a moment.", {"retry-after": "2"}
        )


@dataclass(slots=True)
class _Work:
    """Seconds of work, counted less the longer ago they were."""

    seconds: float
    time: float
    """When they were last counted, or the client last seen."""
    started: float = -math.inf
    """When a request of the client last started."""

    def at(self, now: float) -> float:
        """Return what counts now."""
        return self.seconds * math.exp((self.time - now) / _DECAY_SECONDS)

    def add(self, seconds: float, now: float) -> None:
        """Count some more."""
        self.seconds, self.time = self.at(now) + seconds, now


class FairShare:
    """Make clients that take more than their share yield to the others.

    A client is heavy while it has taken more than the average of the clients that are present.
    Its requests start only while nothing else runs in any of the limiters that share this: one at
    a time, and none beside those of another client, who so finds both a free slot and free cores.
    Where others always have something running, one of its requests a second starts nevertheless.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._clients: OrderedDict[str, _Work] = OrderedDict()
        self._total = _Work(0.0, 0.0)
        self._running = 0
        self._limiters: deque[ConcurrencyLimiter] = deque()

    def join(self, limiter: ConcurrencyLimiter) -> None:
        """Add a limiter whose work counts, and waits, with that of the others."""
        self._limiters.append(limiter)

    def note(self, client: str, seconds: float = 0.0) -> None:
        """Note that a client is present, and work that was done for it."""
        now = self.clock()
        self._clients.setdefault(client, _Work(0.0, now)).add(seconds, now)
        self._clients.move_to_end(client)
        self._total.add(seconds, now)
        oldest = next(iter(self._clients.values()))
        while oldest.time < now - _RECENT_SECONDS or len(self._clients) > _MAX_CLIENTS:
            self._total.add(-oldest.at(now), now)
            self._clients.popitem(last=False)
            oldest = next(iter(self._clients.values()))

    def is_heavy(self, client: str) -> bool:
        """Return whether a client has recently taken more than the average of those present."""
        now, own = self.clock(), self._clients.get(client)
        work = 0.0 if own is None else own.at(now)
        return (
            len(self._clients) > 1
            and work > _FREE_SECONDS
            and work * len(self._clients) > self._total.at(now)
        )

    def yields(self, client: str) -> bool:
        """Return whether a client is heavy, and had its last turn a moment ago."""
        own = self._clients.get(client)
        if own is None or self.clock() - own.started >= _YIELD_SECONDS:
            return False
        return self.is_heavy(client)

    def may_start(self, client: str) -> bool:
        """Return whether a request may start, as far as other clients are concerned."""
        return self._running == 0 or not self.yields(client)

    def start(self, client: str) -> None:
        """Count a request that starts."""
        self._running += 1
        self.note(client)
        self._clients[client].started = self.clock()

    def finish(self, client: str, seconds: float) -> None:
        """Count a request that ended, and start what has waited for that."""
        self._running -= 1
        self.note(client, seconds)
        self._limiters.rotate()  # so that no kind of work always comes first
        for limiter in self._limiters:
            limiter.dispatch()


class ConcurrencyLimiter:
    """A number of slots with a bounded queue in front of them.

    Clients take turns, so that one who sends many requests delays another by one of them at most;
    with a `FairShare` not even by that.
    """

    def __init__(
        self,
        slots: int,
        *,
        max_waiting: int,
        timeout: float = 20.0,
        per_client: int | None = None,
        share: FairShare | None = None,
    ) -> None:
        """Create the limiter.

        Args:
            slots: How many requests may run at once.
            max_waiting: How many more of one client may wait for a slot.
            timeout: Seconds that a request waits for a slot.
            per_client: How many requests of one client may run at once; default: all.
            share: Whom heavy clients yield to; None for mere turns.
        """
        self._free, self._threads = slots, anyio.CapacityLimiter(slots)
        self._max_waiting, self._timeout = max_waiting, timeout
        self._per_client = slots if per_client is None else per_client
        self._running: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._share, self._clock = share, time.monotonic if share is None else share.clock
        if share is not None:
            share.join(self)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it; raise `Overloaded` if the queue is full or too slow."""
        client = CLIENT.get()
        if self._share is not None:
            self._share.note(client)
        if client not in self._queues and self._may_start(client):
            self._take(client)
        else:
            await self._wait(client)
        start = self._clock()
        try:
            yield
        finally:
            self._release(client, self._clock() - start)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Run ``work(*args)`` in a thread while holding a slot."""
        async with self.slot():
            return await anyio.to_thread.run_sync(work, *args, limiter=self._threads)

    def dispatch(self) -> None:
        """Give free slots to the clients whose turn it is, those that yield last."""
        clients = list(self._queues)
        if self._share is not None:
            clients.sort(key=self._share.yields)
        for client in clients:
            if not self._free:
                return
            if self._may_start(client):
                self._pass_on(client)

    def _may_start(self, client: str) -> bool:
        return (
            self._free > 0
            and self._running[client] < self._per_client
            and (self._share is None or self._share.may_start(client))
        )

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
        if self._share is not None:
            self._share.start(client)

    def _release(self, client: str, seconds: float = 0.0) -> None:
        """Free a slot after some seconds, and give free slots to the clients whose turn it is."""
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        if self._share is None:
            self.dispatch()
        else:
            self._share.finish(client, seconds)

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
