"""The server as a process: started, used by many clients at once, and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import httpx2
import pytest
import uvicorn

from polyglance.cli import main
from polyglance.search.library import Library
from polyglance.serve.catalog import LibraryCatalog
from polyglance.serve.connections import GuardedProtocol
from polyglance.serve.server import Server

TOKEN = "correct-horse-battery-staple"
COMMAND = [sys.executable, "-m", "polyglance", "serve"]
MAX_GROWTH = 250_000_000
"""Bytes that 200 clients may add to the memory of the process."""


@pytest.fixture(scope="module")
def server_process(library: Library) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves the library, and the address that it prints."""
    arguments = ["--library", str(library.path), "--port", "0", "--threads", "1"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def memory(process: subprocess.Popen[str]) -> int:
    """Return the resident memory of a process in bytes."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_printed_address_answers(server_process: tuple[subprocess.Popen[str], str]) -> None:
    _, url = server_process
    assert url.startswith("http://127.0.0.1:")
    with urlopen(f"{url}api/search?q=dog&limit=3") as response:
        assert len(json.load(response)["hits"]) == 3
        assert "server" not in response.headers


def test_two_hundred_clients_at_once(server_process: tuple[subprocess.Popen[str], str]) -> None:
    process, url = server_process
    before = memory(process)

    async def client(number: int, session: httpx2.AsyncClient) -> list[int]:
        paths = (
            f"api/search?q=dog+{number}",
            f"api/items/{1 + number % 30}/thumbnail?size=640",
            f"api/items/{1 + number % 30}",
            "api/search?q=" + "x" * 1001,
            "api/library",
        )
        return [
            (await session.get(url + path)).status_code for path in (paths * 2)[number % 5 :][:3]
        ]

    async def run_clients() -> list[list[int]]:
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(timeout=None, limits=limits) as session:
            return await asyncio.gather(*(client(n, session) for n in range(200)))

    statuses = Counter(status for client in asyncio.run(run_clients()) for status in client)
    assert set(statuses) <= {200, 422, 503}
    assert statuses[200] >= 200
    assert statuses[503] < statuses[200]
    assert memory(process) - before < MAX_GROWTH


def run_command(*arguments: str) -> int | str | None:
    """Run the command in this process and return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["polyglance", "serve", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
    return caught.value.code


def test_errors_name_the_fix(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("a" * 40)
    opened = ("--library", str(library.path))
    for arguments, message in {
        (*opened, "--host", "0.0.0.0"): "needs an access token",
        (*opened, "--public-url", "https://pictures.example"): "needs an access token",
        (*opened, "--public-url", "pictures.example"): "such as https://pictures.example",
        (*opened, "--trusted-proxy", "localhost"): "such as 127.0.0.1",
        (*opened, "--token-file", str(tmp_path / "token")): "easy to guess",
        (*opened, "--token-file", str(tmp_path / "none")): "cannot read the access token",
        (*opened, "--token", TOKEN, "--token-file", str(tmp_path / "token")): "two access tokens",
        ("--library", str(tmp_path / "none.polyglance")): "polyglance index",
    }.items():
        assert run_command(*arguments) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_a_server_behind_a_proxy_prints_its_public_address(
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configs: list[uvicorn.Config] = []
    monkeypatch.setattr(Server, "run", lambda server, sockets: configs.append(server.config))
    monkeypatch.setattr(LibraryCatalog, "warm_up", lambda catalog: None)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    status = run_command(
        *("--library", str(library.path), "--port", "0", "--token-file", str(tmp_path / "token")),
        *("--public-url", "https://pictures.example", "--trusted-proxy", "127.0.0.1"),
    )
    assert not status
    assert f"https://pictures.example/?token={TOKEN}" in capsys.readouterr().out
    [config] = configs
    assert issubclass(config.http, GuardedProtocol)
    assert "127.0.0.1" in config.http.registry.proxies


def test_missing_extra_is_named(library: Library) -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None; sys.modules['fastapi'] = None;"
        f"sys.argv = ['polyglance', 'serve', '--library', {str(library.path)!r}];"
        "from polyglance.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "polyglance[serve]" in done.stderr
