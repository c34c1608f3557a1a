from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from polyglance.errors import PolyglanceError
from polyglance.utils import worker_pool
from polyglance.utils.worker_pool import TaskError, WorkerPool
from polyglance.utils.worker_process import SHARED_SIZE

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """Return a pool whose processes can import this folder's helpers."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(TESTS))
        pool = WorkerPool()
        yield pool
        pool.close()


def run(pool: WorkerPool, task: str, payload: bytes = b"", **settings: Any) -> dict[str, Any]:
    return pool.run(
        f"helpers.worker_tasks:{task}", settings, payload,
        memory=100_000_000, seconds=0.01, max_reply=10_000_000, convert=lambda header, _: header,
    )  # fmt: skip


def cause(pool: WorkerPool, task: str, **settings: Any) -> str:
    with pytest.raises(TaskError) as caught:
        run(pool, task, **settings)
    return caught.value.cause


@pytest.mark.parametrize("shared_size", [SHARED_SIZE, 1000], ids=["shared memory", "pipes"])
def test_bytes_go_to_a_process_and_back(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, shared_size: int
) -> None:
    monkeypatch.setattr(worker_pool, "SHARED_SIZE", shared_size)
    payload = bytes(range(256)) * 20_000  # more than a pipe holds
    replies = pool.stream(
        "helpers.worker_tasks:echo", {"a": [1, None]}, payload,
        memory=100_000_000, seconds=5, max_reply=len(payload),
    )  # fmt: skip
    [(header, content)] = replies
    assert header["settings"] == {"a": [1, None]}
    assert content == payload
    found = pool.run(
        "helpers.worker_tasks:echo", {}, payload[:900],
        memory=100_000_000, seconds=5, max_reply=900, convert=lambda _, content: bytes(content),
    )  # fmt: skip
    assert found == payload[:900]


def test_a_process_is_kept_for_the_next_task_also_after_a_bad_file(pool: WorkerPool) -> None:
    first = run(pool, "echo")["pid"]
    assert cause(pool, "refuse") == "content"
    assert run(pool, "echo")["pid"] == first
    assert run(pool, "babble")["fine"]
    assert run(pool, "echo")["pid"] == first


@pytest.mark.parametrize(
    ("task", "expected"), [("crash", "crash"), ("vanish", "killed"), ("loop", "seconds")]
)
def test_a_process_that_dies_costs_one_task(pool: WorkerPool, task: str, expected: str) -> None:
    assert cause(pool, task) == expected
    assert "pid" in run(pool, "echo")


def test_memory_is_limited_for_each_task(pool: WorkerPool) -> None:
    assert run(pool, "allocate", size=50_000_000)["size"] == 50_000_000
    assert cause(pool, "allocate", size=200_000_000) == "memory"
    assert run(pool, "allocate", size=50_000_000)["size"] == 50_000_000


def test_a_process_that_ended_meanwhile_is_replaced(pool: WorkerPool) -> None:
    first = run(pool, "echo")["pid"]
    os.kill(first, signal.SIGTERM)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert run(pool, "echo")["pid"] != first


def test_a_process_that_waits_for_ever_is_ended(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(pool, "echo")  # so that the time for starting does not count
    monkeypatch.setattr(worker_pool, "wall_seconds", lambda seconds: 0.0)
    with pytest.raises(TaskError) as caught:
        pool.run(
            "helpers.worker_tasks:loop",
            {},
            b"",
            memory=10**8,
            seconds=9,
            max_reply=0,
            convert=lambda *_: None,
        )
    assert caught.value.cause == "killed"


def test_replies_of_a_stream_that_is_given_up_are_not_taken_for_the_next(pool: WorkerPool) -> None:
    replies = pool.stream(
        "helpers.worker_tasks:echo", {"times": 3}, b"old",
        memory=10**8, seconds=5, max_reply=3,
    )  # fmt: skip
    assert next(replies)[1] == b"old"
    replies.close()
    assert run(pool, "allocate", size=1)["size"] == 1


def test_a_longer_reply_than_expected_is_refused(pool: WorkerPool) -> None:
    with pytest.raises(TaskError) as caught:
        pool.run(
            "helpers.worker_tasks:echo",
            {},
            b"12345",
            memory=10**8,
            seconds=5,
            max_reply=4,
            convert=lambda *_: None,
        )
    assert caught.value.cause == "crash"


def test_threads_have_processes_of_their_own(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda number: run(pool, "echo", number=number), range(12)))
    assert [one["settings"]["number"] for one in found] == list(range(12))
    assert len({one["pid"] for one in found}) <= 3


def test_an_installation_that_cannot_start_processes_is_not_the_file_s_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for program in ("/bin/false", "/no/such/program"):
        monkeypatch.setattr(worker_pool.sys, "executable", program)
        with pytest.raises(PolyglanceError, match="process") as caught:
            run(WorkerPool(), "echo")
        assert not isinstance(caught.value, TaskError)
