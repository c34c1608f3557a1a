"""Concurrency limits: bounded queues, and turns for every client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from polyglance.serve.limits import CLIENT, ConcurrencyLimiter, Overloaded


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
