"""Concurrency limits: bounded queues, turns for every client, and a fair share of the work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from polyglance.serve.limits import CLIENT, ConcurrencyLimiter, FairShare, Overloaded


def as_client(client: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task as a request of a client."""
    context = copy_context()
    context.run(CLIENT.set, client)
    return asyncio.get_running_loop().create_task(work, context=context)


def test_the_queue_for_slots_is_bounded() -> None:
    async def run_requests() -> tuple[int, int]:
        limiter = ConcurrencyLimiter(1, max_waiting=2, timeout=3600)
        release = asyncio.Event()

        async def request() -> bool:
            try:
                async with limiter.slot():
                    await release.wait()
                    return True
            except Overloaded:
                return False

        tasks = [asyncio.create_task(request()) for _ in range(10)]
        while sum(task.done() for task in tasks) < 7:
            await asyncio.sleep(0)
        for _ in range(10):  # nothing else happens before the release
            await asyncio.sleep(0)
        refused = sum(task.done() for task in tasks)
        release.set()
        return refused, sum(await asyncio.gather(*tasks))

    assert asyncio.run(run_requests()) == (7, 3)


def test_waiting_too_long_for_a_slot_gets_503_with_retry_after() -> None:
    async def run_requests() -> Overloaded:
        limiter = ConcurrencyLimiter(1, max_waiting=2, timeout=0.02)
        async with limiter.slot():
            with pytest.raises(Overloaded) as caught:
                async with limiter.slot():
                    pass
        async with limiter.slot():  # the slot is free again
            return caught.value

    problem = asyncio.run(run_requests())
    assert (problem.status, problem.headers["retry-after"]) == (503, "2")


def served(limiter: ConcurrencyLimiter, requests: str) -> str:
    """Return the letters of clients in the order in which the limiter serves their requests."""
    order = []

    async def request(client: str) -> None:
        async with limiter.slot():
            order.append(client)
            await asyncio.sleep(0)

    async def run_requests() -> None:
        await asyncio.gather(*(as_client(client, request(client)) for client in requests))

    asyncio.run(run_requests())
    return "".join(order)


def test_clients_take_turns() -> None:
    assert served(ConcurrencyLimiter(1, max_waiting=9), "aaaaaabbcc") == "aabcabcaaa"
    assert served(ConcurrencyLimiter(1, max_waiting=9), "aaaa") == "aaaa"


def test_a_full_queue_of_one_client_leaves_room_for_others() -> None:
    async def run_requests() -> list[bool]:
        limiter, release = ConcurrencyLimiter(1, max_waiting=2), asyncio.Event()

        async def request() -> bool:
            try:
                async with limiter.slot():
                    await release.wait()
                    return True
            except Overloaded:
                return False

        tasks = [as_client(client, request()) for client in "aaaaabbb" + "cdefghijk"]
        for _ in range(10):
            await asyncio.sleep(0)
        release.set()
        return await asyncio.gather(*tasks)

    # One runs and two of a client wait, eight of all together.
    expected = [True] * 3 + [False] * 2 + [True, True, False] + [True] * 4 + [False] * 5
    assert asyncio.run(run_requests()) == expected


def test_slots_of_one_client_are_bounded() -> None:
    async def run_requests() -> dict[str, int]:
        limiter = ConcurrencyLimiter(3, max_waiting=9, per_client=2)
        running = dict.fromkeys("ab", 0)
        most = dict.fromkeys("ab", 0)

        async def request(client: str) -> None:
            async with limiter.slot():
                running[client] += 1
                most[client] = max(running[client], most[client])
                await asyncio.sleep(0)
                running[client] -= 1

        await asyncio.gather(*(as_client(client, request(client)) for client in "aaaaaab"))
        return most

    assert asyncio.run(run_requests()) == {"a": 2, "b": 1}


def test_a_request_that_gives_up_leaves_the_queue() -> None:
    async def run_requests() -> None:
        limiter = ConcurrencyLimiter(1, max_waiting=1)

        async def request() -> None:
            async with limiter.slot():
                pass

        async with limiter.slot():
            for _ in range(3):
                waiting = asyncio.create_task(request())
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            waiting = asyncio.create_task(request())
            await asyncio.sleep(0)
            waiting.cancel()  # and the slot is freed before it has noticed
        await request()

    asyncio.run(run_requests())


TICK = 0.0625
"""Seconds: the unit of time of a `Simulation`."""
STEP = 2
"""Ticks that a request takes."""


class Simulation:
    """Requests that take simulated time, in limiters that share the work."""

    def __init__(self, limiters: int = 1) -> None:
        self.now = 0.0
        share = FairShare(lambda: self.now)
        self._limiters = [
            ConcurrencyLimiter(2, max_waiting=999, timeout=3600, share=share)
            for _ in range(limiters)
        ]
        self.running: list[str] = []
        self.started: list[tuple[str, str]] = []
        """Clients in the order in which their requests started, each with those that ran then."""
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, clients: str, limiter: int = 0) -> None:
        """Send a request of each of these clients."""
        self._tasks += [as_client(client, self._request(client, limiter)) for client in clients]

    async def _request(self, client: str, limiter: int) -> None:
        async with self._limiters[limiter].slot():
            self.started.append((client, "".join(self.running)))
            self.running.append(client)
            end = self.now + STEP * TICK
            while self.now < end:
                await asyncio.sleep(0)
            self.running.remove(client)

    async def settle(self) -> None:
        """Let everything happen that takes no time."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def advance(self, ticks: int) -> list[tuple[str, str]]:
        """Let time pass; return what started meanwhile."""
        before = len(self.started)
        await self.settle()
        for _ in range(ticks):
            self.now += TICK
            await self.settle()
        return self.started[before:]

    async def finish(self) -> str:
        """Wait for all requests; return the clients in the order in which they were served."""
        while not all(task.done() for task in self._tasks):
            await self.advance(1)
        return "".join(client for client, _ in self.started)


def test_a_client_alone_uses_all_slots() -> None:
    async def simulate() -> None:
        simulation = Simulation()
        simulation.send("a" * 20)
        await simulation.finish()
        assert simulation.now == 10 * STEP * TICK

    asyncio.run(simulate())


def test_a_heavy_client_leaves_a_slot_to_one_that_asks_now_and_then() -> None:
    async def simulate() -> None:
        simulation = Simulation()
        simulation.send("a" * 40)
        await simulation.advance(4 * STEP)
        simulation.send("b")  # nobody knew of b: it waits for the end of one request
        assert await simulation.advance(2 * STEP) == [("b", ""), ("a", "")]
        for _ in range(5):
            await simulation.advance(1)
            simulation.send("b")
            # At once, and nothing of a starts beside it; then a goes on, one request at a time.
            assert await simulation.advance(1) == [("b", "a")]
            assert simulation.running == ["b"]
            assert await simulation.advance(2 * STEP + 1) == [("a", "")] * 3
        order = await simulation.finish()
        assert (order.count("a"), order.count("b")) == (40, 6)

    asyncio.run(simulate())


def test_a_heavy_client_yields_in_all_kinds_of_work() -> None:
    async def simulate() -> None:
        simulation = Simulation(limiters=2)
        simulation.send("a" * 20, 0)
        simulation.send("a" * 20, 1)
        await simulation.advance(3 * STEP)
        assert simulation.running == ["a"] * 4
        simulation.send("b", 0)
        assert [client for client, _ in await simulation.advance(STEP)] == ["b"]
        await simulation.advance(STEP + 1)
        assert simulation.running == ["a"]
        simulation.send("b", 1)
        assert await simulation.advance(1) == [("b", "a")]
        assert simulation.running == ["b"]
        assert await simulation.advance(2 * STEP) == [("a", "")] * 2
        assert len(await simulation.finish()) == 42

    asyncio.run(simulate())


def test_equally_busy_clients_get_equal_shares() -> None:
    async def simulate() -> None:
        simulation = Simulation()
        simulation.send("a" * 100)
        await simulation.advance(5 * STEP)
        simulation.send("b" * 100)
        await simulation.advance(100 * STEP)
        order = [client for client, _ in simulation.started]
        assert abs(order.count("a") - order.count("b")) <= 10
        assert len(order) >= 100  # at least one slot is always taken

    asyncio.run(simulate())


def test_others_who_always_have_something_running_do_not_starve_a_heavy_client() -> None:
    async def simulate() -> None:
        simulation = Simulation()
        simulation.send("a" * 100)
        await simulation.advance(20 * STEP)
        started = []
        for number in range(80):  # five seconds, of eight clients in turn
            simulation.send("bcdefghi"[number % 8])
            started += await simulation.advance(1)
        assert 4 <= sum(client == "a" for client, _ in started) <= 8
        assert sum(client != "a" for client, _ in started) >= 70

    asyncio.run(simulate())


def test_a_client_uses_all_slots_again_when_others_have_gone() -> None:
    async def simulate() -> None:
        simulation = Simulation()
        simulation.send("a" * 12 + "b")
        await simulation.advance(12 * STEP)
        assert simulation.running == []
        simulation.now += 31
        simulation.send("a" * 20)
        assert len(await simulation.advance(10 * STEP)) == 20

    asyncio.run(simulate())
