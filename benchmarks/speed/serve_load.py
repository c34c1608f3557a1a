"""Two hundred clients and a thousand idle connections at `polyglance serve`.

    python -m benchmarks.speed.serve_load

A library of the packaged photographs is served by a real ``polyglance serve``. Each client sends
one request after another over a connection of its own: searches, thumbnails, invalid requests and
hostile files. Only documented statuses may come back. The idle connections come from the clients'
address, send nothing, and are opened again when the server closes them.

Phases alternate, so that they meet the same machine: nobody else, the clients, the clients and the
idle connections. In all of them another address searches, one query after another, and is timed in
a process of its own. Writes results/serve_load.json: responses by status, latency, how the other
address fared in each phase, and the peak memory of the server and of its decoder processes.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import multiprocessing
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from PIL import Image

from benchmarks.results_io import write_results
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library

DOCUMENTED = {200, 304, 404, 408, 413, 415, 422, 503}
PHASES = {"quiet": (False, False), "idle": (False, True), "clients": (True, False),
          "clients and idle": (True, True)}  # fmt: skip
"""Whether there are clients, and idle connections."""
OTHER_ADDRESS = "127.0.0.2"
PAUSE = 0.05
"""Seconds between two searches of the other address."""
REOPEN_SECONDS = 5.0
"""After which a closed idle connection is opened again, on average."""
QUERIES = (
    "a dog", "zwei Hunde am Strand", "une montagne enneigée", "夜晚的城市", "قطة صغيرة",
    "kůň na louce", "um prato de comida", "木にとまる鳥", "people making music", "мост через реку",
)  # fmt: skip
INVALID_PATHS = (
    "/api/search", "/api/search?q=" + "x" * 1001, "/api/search?q=a%00b", "/api/search?q=a&limit=0",
    "/api/items/..%2f..%2fetc%2fpasswd", "/api/items/999999/picture", "/api/items/-1/thumbnail",
    "/api/search?q=a&folder=..%2f..", "/api/search?q=a&since=tomorrow", "/nothing",
)  # fmt: skip


@dataclass
class Responses:
    """Statuses and latencies by kind of request."""

    statuses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, outcome: str, seconds: float) -> None:
        """Count a response."""
        self.statuses[kind][outcome] += 1
        self.seconds[kind].append(seconds)

    def figures(self) -> dict[str, dict[str, Any]]:
        """Summarise statuses and latencies of each kind."""
        return {
            kind: {
                "statuses": dict(sorted(self.statuses[kind].items())),
                "p50_ms": round(1000 * float(np.percentile(times, 50))),
                "p95_ms": round(1000 * float(np.percentile(times, 95))),
            }
            for kind, times in sorted(self.seconds.items())
        }


def hostile_files() -> list[bytes]:
    """Return files that are no images, claim a huge size, or are decompression bombs."""

    def png(width: int, height: int, body: bytes) -> bytes:
        def chunk(name: bytes, data: bytes) -> bytes:
            return (
                struct.pack(">I", len(data)) + name + data
                + struct.pack(">I", zlib.crc32(name + data))
            )  # fmt: skip

        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = (chunk(b"IHDR", header), chunk(b"IDAT", body), chunk(b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

    good = io.BytesIO()
    Image.open(FOLDER / "owl.webp").convert("RGB").save(good, "JPEG")
    return [
        b"GIF89a" + bytes(range(256)) * 8,
        png(60_000, 60_000, zlib.compress(b"\0" * 1_000_000)),  # a decompression bomb
        png(7_000, 7_000, zlib.compress(b"\0" * 7_001 * 100)),  # within limits, but truncated
        good.getvalue()[: len(good.getvalue()) // 3],
        b"\xff\xd8\xff" + b"\0" * 200_000,
        b"",
    ]


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Return the bytes of an HTTP request."""
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    if method == "POST":
        head += f"content-type: image/png\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def random_request(
    rng: random.Random, items: int, uploads: list[bytes], good: bytes
) -> tuple[str, bytes]:
    """Return the kind and the bytes of a random request."""
    number = rng.random()
    if number < 0.45:
        query = quote(f"{rng.choice(QUERIES)} {rng.randrange(1000)}")
        return "search", request("GET", f"/api/search?q={query}&limit=40")
    if number < 0.70:
        size = rng.choice((256, 640))
        return "thumbnail", request(
            "GET", f"/api/items/{rng.randint(1, items)}/thumbnail?size={size}"
        )
    if number < 0.75:
        return "library", request("GET", "/api/library")
    if number < 0.90:
        return "invalid", request("GET", rng.choice(INVALID_PATHS))
    if number < 0.97:
        return "hostile upload", request("POST", "/api/pictures", rng.choice(uploads))
    return "upload", request("POST", "/api/pictures", good)


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Read a response to its end; return its status, and whether the connection stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(maxsplit=2)[1])
    length = next(
        (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    await reader.readexactly(length if status != 304 else 0)
    return status, b"connection: close" not in head


async def client(
    number: int, port: int, items: int, uploads: list[bytes], deadline: float, responses: Responses
) -> None:
    """Send requests until the deadline."""
    rng, good = random.Random(number), (FOLDER / "owl.webp").read_bytes()
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while time.monotonic() < deadline:
        kind, data = random_request(rng, items, uploads, good)
        start, stays_open = time.monotonic(), False
        try:
            if connection is None:
                connection = await asyncio.open_connection("127.0.0.1", port)
            connection[1].write(data)
            await connection[1].drain()
            status, stays_open = await asyncio.wait_for(read_response(connection[0]), 90)
            outcome = str(status)
        except (OSError, EOFError):
            outcome = "connection closed"
        except TimeoutError:
            outcome = "no answer in 90 s"
        if connection is not None and not stays_open:
            connection[1].close()
            connection = None
        responses.add(kind, outcome, time.monotonic() - start)
    if connection is not None:
        connection[1].close()


def resident_bytes(process: int) -> tuple[int, int]:
    """Return the resident memory of a process, and of its children."""
    own, children = 0, 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line
            )
        except OSError:  # it has just ended
            continue
        size = 1024 * int(fields.get("VmRSS", "0 kB").split()[0])
        if fields["Pid"] == str(process):
            own = size
        elif fields["PPid"] == str(process):
            children += size
    return own, children


@contextmanager
def serving(library: Path) -> Iterator[tuple[int, int]]:
    """Serve a library in a process; yield its id and port."""
    command = [sys.executable, "-m", "polyglance", "serve", "-l", str(library), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().split()[-1]).port
        assert port is not None
        try:
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the server did not shut down cleanly"


def search_as_other(port: int, seconds: float, seed: int) -> list[tuple[str, float]]:
    """Search from another address; return the outcome and the seconds of each search."""
    rng, deadline, results = random.Random(seed), time.monotonic() + seconds, []
    connection = http.client.HTTPConnection("127.0.0.1", port, 90, (OTHER_ADDRESS, 0))
    while time.monotonic() < deadline:
        query = quote(f"{rng.choice(QUERIES)} {rng.randrange(1000)}")
        start = time.monotonic()
        try:
            connection.request("GET", f"/api/search?q={query}&limit=40")
            response = connection.getresponse()
            response.read()
            outcome = str(response.status)
        except (OSError, http.client.HTTPException):
            outcome = "connection closed"
            connection.close()
        results.append((outcome, time.monotonic() - start))
        time.sleep(PAUSE)
    connection.close()
    return results


async def hold_idle(port: int, deadline: float, opened: Counter[str]) -> None:
    """Keep a connection open that sends nothing."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            opened["refused"] += 1
        else:
            opened["opened"] += 1
            with suppress(TimeoutError, OSError):
                await asyncio.wait_for(reader.read(), left)
            writer.close()
        pause = REOPEN_SECONDS * (0.5 + random.random())
        await asyncio.sleep(max(0, min(pause, deadline - time.monotonic())))


async def load(
    process: int,
    port: int,
    items: int,
    *,
    clients: int,
    idle: int,
    seconds: float,
    rounds: int,
) -> dict[str, object]:
    """Run the phases in turn and summarise the responses.

    Args:
        process: Id of the server's process.
        port: Its port.
        items: Number of pictures in its library.
        clients: Number of clients.
        idle: Number of idle connections.
        seconds: Seconds that each phase takes in all.
        rounds: How many times each phase comes.
    """
    responses = {phase: Responses() for phase in PHASES}
    others, opened, peak, uploads = Responses(), Counter[str](), [0, 0], hostile_files()
    before, start, load_average = resident_bytes(process)[0], time.monotonic(), os.getloadavg()[0]

    async def watch() -> None:
        while True:
            for i, size in enumerate(resident_bytes(process)):
                peak[i] = max(peak[i], size)
            await asyncio.sleep(0.25)

    watcher = asyncio.create_task(watch())
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, search_as_other, port, 0.1, 0)
        for number in range(rounds):
            for phase, (has_clients, has_idle) in PHASES.items():
                deadline = time.monotonic() + seconds / rounds
                work = [hold_idle(port, deadline, opened) for _ in range(idle * has_idle)]
                work += [
                    client(number * clients + n, port, items, uploads, deadline, responses[phase])
                    for n in range(clients * has_clients)
                ]
                other = loop.run_in_executor(pool, search_as_other, port, seconds / rounds, number)
                await asyncio.gather(*work)
                for outcome, taken in await other:
                    others.add(phase, outcome, taken)
    watcher.cancel()
    loaded = responses["clients"]
    total: Counter[str] = sum(
        (statuses for phase in responses.values() for statuses in phase.statuses.values()),
        sum(others.statuses.values(), Counter()),
    )
    undocumented = {s for s in total if not s.isdecimal() or int(s) not in DOCUMENTED}
    fared = others.figures()
    return {
        "clients": clients,
        "idle_connections": idle,
        "rounds": rounds,
        "load_average_before": round(load_average, 1),
        "seconds": round(time.monotonic() - start, 1),
        "requests": sum(total.values()),
        "statuses": dict(sorted(total.items())),
        "undocumented": sorted(undocumented),
        "by_request": loaded.figures(),
        "by_request_with_idle": responses["clients and idle"].figures(),
        "other_address": fared,
        "idle": dict(opened),
        "p95_ratios": {
            "other address, idle connections to quiet": ratio(fared["idle"], fared["quiet"]),
            "other address, clients and idle connections to clients": ratio(
                fared["clients and idle"], fared["clients"]
            ),
            "other address, clients and idle connections to quiet": ratio(
                fared["clients and idle"], fared["quiet"]
            ),
            "clients' searches, with idle connections to without": ratio(
                responses["clients and idle"].figures()["search"], loaded.figures()["search"]
            ),
        },
        "memory_mb": {
            "before": round(before / 1e6),
            "peak": round(peak[0] / 1e6),
            "after": round(resident_bytes(process)[0] / 1e6),
            "decoders_peak": round(peak[1] / 1e6),
        },
    }


def ratio(loaded: dict[str, Any], quiet: dict[str, Any]) -> float:
    """Return how many times slower the slowest of twenty searches became."""
    return round(float(loaded["p95_ms"]) / max(1, quiet["p95_ms"]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60, help="of each phase, in all rounds")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, help="another folder for serve_load.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my.polyglance"
        with Library(path) as library:
            library.add(FOLDER)
            items = len(library)
        with serving(path) as (process, port):
            figures = asyncio.run(
                load(
                    process,
                    port,
                    items,
                    clients=options.clients,
                    idle=options.idle,
                    seconds=options.seconds,
                    rounds=options.rounds,
                )
            )
    write_results("serve_load", {"pictures": items, **figures}, options.out)
    print(figures["statuses"], figures["p95_ratios"], figures["memory_mb"])
    if figures["undocumented"]:
        sys.exit(f"undocumented responses: {figures['undocumented']}")


if __name__ == "__main__":
    main()
