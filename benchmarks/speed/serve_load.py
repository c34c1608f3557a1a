"""Two hundred clients at `polyglance serve` for a minute: statuses, latency and memory.

    python -m benchmarks.speed.serve_load

A library of the packaged photographs is served by a real ``polyglance serve``. Each client sends
one request after another over a connection of its own: searches, thumbnails, invalid requests and
hostile files. Only documented statuses may come back. Writes results/serve_load.json: responses by
status, latency, and the peak memory of the server and of its decoder processes.
"""

from __future__ import annotations

import argparse
import asyncio
import io
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
from PIL import Image

from benchmarks.results_io import write_results
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library

DOCUMENTED = {200, 304, 404, 408, 413, 415, 422, 503}
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

    def figures(self) -> dict[str, object]:
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


async def client(number: int, port: int, items: int, deadline: float, responses: Responses) -> None:
    """Send requests until the deadline."""
    rng, uploads = random.Random(number), hostile_files()
    good = (FOLDER / "owl.webp").read_bytes()
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
        responses.statuses[kind][outcome] += 1
        responses.seconds[kind].append(time.monotonic() - start)
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
        yield process.pid, port
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the server did not shut down cleanly"


async def load(
    process: int, port: int, items: int, clients: int, seconds: float
) -> dict[str, object]:
    """Send the requests of all clients and summarise the responses."""
    responses, peak = Responses(), [0, 0]
    before, start, load_average = resident_bytes(process)[0], time.monotonic(), os.getloadavg()[0]

    async def watch() -> None:
        while True:
            for i, size in enumerate(resident_bytes(process)):
                peak[i] = max(peak[i], size)
            await asyncio.sleep(0.25)

    watcher = asyncio.create_task(watch())
    deadline = start + seconds
    await asyncio.gather(*(client(n, port, items, deadline, responses) for n in range(clients)))
    watcher.cancel()
    total: Counter[str] = sum(responses.statuses.values(), Counter())
    undocumented = {s for s in total if not s.isdecimal() or int(s) not in DOCUMENTED}
    return {
        "clients": clients,
        "load_average_before": round(load_average, 1),
        "seconds": round(time.monotonic() - start, 1),
        "requests": sum(total.values()),
        "statuses": dict(sorted(total.items())),
        "undocumented": sorted(undocumented),
        "by_request": responses.figures(),
        "memory_mb": {
            "before": round(before / 1e6),
            "peak": round(peak[0] / 1e6),
            "after": round(resident_bytes(process)[0] / 1e6),
            "decoders_peak": round(peak[1] / 1e6),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, help="another folder for serve_load.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my.polyglance"
        with Library(path) as library:
            library.add(FOLDER)
            items = len(library)
        with serving(path) as (process, port):
            figures = asyncio.run(load(process, port, items, options.clients, options.seconds))
    write_results("serve_load", {"pictures": items, **figures}, options.out)
    print(figures["statuses"], figures["memory_mb"])
    if figures["undocumented"]:
        sys.exit(f"undocumented responses: {figures['undocumented']}")


if __name__ == "__main__":
    main()
