"""The clients of `benchmarks.speed.serve_load`: busy ones, idle connections, and another address.

They speak HTTP over bare sockets, since they take their CPU time from the cores of the server.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import random
import struct
import time
import zlib
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from polyglance.demo.photographs import FOLDER

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


def search_as_other(port: int, seconds: float, seed: int) -> tuple[list[tuple[str, float]], float]:
    """Search from another address, in a process of its own.

    Args:
        port: The server's port.
        seconds: For how long.
        seed: Of the random queries.

    Returns:
        The outcome and the seconds of each search, and this process's CPU time.
    """
    rng, deadline, results = random.Random(seed), time.monotonic() + seconds, []
    before = time.process_time()
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
    return results, time.process_time() - before


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
