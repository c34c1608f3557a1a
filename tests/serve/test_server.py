"""The service as a process: started, used by many at once, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import httpx2
import pytest

from polyglance.search.library import Library

COMMAND = [sys.executable, "-m", "polyglance", "serve"]
ALLOWED = 250_000_000
"""Bytes that 200 clients may add to the memory of the process."""


@pytest.fixture(scope="module")
def running(library: Library) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves the library, and its link."""
    arguments = ["--library", str(library.path), "--port", "0", "--threads", "1"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def memory(process: subprocess.Popen[str]) -> int:
    """Bytes of a process in memory."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_the_link_answers(running: tuple[subprocess.Popen[str], str]) -> None:
    _, link = running
    assert link.startswith("http://127.0.0.1:")
    with urlopen(f"{link}api/search?q=dog&limit=3") as answer:
        assert len(json.load(answer)["hits"]) == 3
        assert "server" not in answer.headers


def test_two_hundred_clients_at_once(running: tuple[subprocess.Popen[str], str]) -> None:
    process, link = running
    before = memory(process)

    async def client(number: int, session: httpx2.AsyncClient, ends: float) -> list[int]:
        addresses = (
            f"api/search?q=dog+{number}",
            f"api/items/{1 + number % 30}/thumbnail?size=640",
            f"api/items/{1 + number % 30}",
            "api/search?q=" + "x" * 1001,
            "api/library",
        )
        statuses = []
        while time.monotonic() < ends:
            for address in (addresses * 2)[number % 5 :][:3]:
                statuses.append((await session.get(link + address)).status_code)
        return statuses

    async def crowd() -> list[list[int]]:
        limits = httpx2.Limits(max_connections=200)
        ends = time.monotonic() + 2
        async with httpx2.AsyncClient(timeout=60, limits=limits) as session:
            return await asyncio.gather(*(client(n, session, ends) for n in range(200)))

    statuses = Counter(status for client in asyncio.run(crowd()) for status in client)
    assert set(statuses) <= {200, 422, 503}
    assert statuses[200] >= 200
    assert statuses[503] < statuses[200]
    assert memory(process) - before < ALLOWED


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_cannot_be_served_is_said(library: Library, tmp_path: Path) -> None:
    assert "takes a token" in refused("--library", str(library.path), "--host", "0.0.0.0")
    assert "polyglance index" in refused("--library", str(tmp_path / "none.polyglance"))


def test_a_missing_part_is_named(library: Library) -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None; sys.modules['fastapi'] = None;"
        f"sys.argv = ['polyglance', 'serve', '--library', {str(library.path)!r}];"
        "from polyglance.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "polyglance[serve]" in done.stderr
