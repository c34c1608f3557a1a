"""Two hundred clients at a service for a minute: what they are answered, how soon, what it takes.

    python -m benchmarks.speed.serve_load

A library of the photographs that come along is served by a real ``polyglance serve``, and each
client asks over a connection of its own, one request after another, as soon as it has its
answer: searches, thumbnails, requests that are wrong and files that mean harm. Nothing but
answers that the documentation promises may come back. Written are answers by status, times
to the answer, and the most memory of the process and of the decoders it starts.
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

PROMISED = {200, 304, 404, 408, 413, 415, 422, 503}
QUERIES = (
    "a dog", "zwei Hunde am Strand", "une montagne enneigée", "夜晚的城市", "قطة صغيرة",
    "kůň na louce", "um prato de comida", "木にとまる鳥", "people making music", "мост через реку",
)  # fmt: skip
WRONG = (
    "/api/search", "/api/search?q=" + "x" * 1001, "/api/search?q=a%00b", "/api/search?q=a&limit=0",
    "/api/items/..%2f..%2fetc%2fpasswd", "/api/items/999999/picture", "/api/items/-1/thumbnail",
    "/api/search?q=a&folder=..%2f..", "/api/search?q=a&since=tomorrow", "/nothing",
)  # fmt: skip


@dataclass
class Measured:
    """What came back, by kind of request."""

    statuses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def figures(self) -> dict[str, object]:
        """Answers and times of each kind."""
        return {
            kind: {
                "answers": dict(sorted(self.statuses[kind].items())),
                "p50_ms": round(1000 * float(np.percentile(times, 50))),
                "p95_ms": round(1000 * float(np.percentile(times, 95))),
            }
            for kind, times in sorted(self.seconds.items())
        }


def harmful() -> list[bytes]:
    """Files that are no pictures, claim too much, or unpack to far more than they are."""

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
        png(60_000, 60_000, zlib.compress(b"\0" * 1_000_000)),  # a bomb
        png(7_000, 7_000, zlib.compress(b"\0" * 7_001 * 100)),  # allowed, and cut short
        good.getvalue()[: len(good.getvalue()) // 3],
        b"\xff\xd8\xff" + b"\0" * 200_000,
        b"",
    ]


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    if method == "POST":
        head += f"content-type: image/png\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def drawn(
    chance: random.Random, items: int, uploads: list[bytes], good: bytes
) -> tuple[str, bytes]:
    """A request and its kind."""
    number = chance.random()
    if number < 0.45:
        words = quote(f"{chance.choice(QUERIES)} {chance.randrange(1000)}")
        return "search", request("GET", f"/api/search?q={words}&limit=40")
    if number < 0.70:
        size = chance.choice((256, 640))
        return "thumbnail", request(
            "GET", f"/api/items/{chance.randint(1, items)}/thumbnail?size={size}"
        )
    if number < 0.75:
        return "library", request("GET", "/api/library")
    if number < 0.90:
        return "wrong", request("GET", chance.choice(WRONG))
    if number < 0.97:
        return "hostile upload", request("POST", "/api/pictures", chance.choice(uploads))
    return "upload", request("POST", "/api/pictures", good)


async def answered(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """The status of an answer, which is read to its end, and whether the connection stays."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(maxsplit=2)[1])
    length = next(
        (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    await reader.readexactly(length if status != 304 else 0)
    return status, b"connection: close" not in head


async def client(number: int, port: int, items: int, ends: float, measured: Measured) -> None:
    chance, uploads = random.Random(number), harmful()
    good = (FOLDER / "owl.webp").read_bytes()
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while time.monotonic() < ends:
        kind, asked = drawn(chance, items, uploads, good)
        began, stays = time.monotonic(), False
        try:
            if connection is None:
                connection = await asyncio.open_connection("127.0.0.1", port)
            connection[1].write(asked)
            await connection[1].drain()
            status, stays = await asyncio.wait_for(answered(connection[0]), 90)
            said = str(status)
        except (OSError, EOFError):
            said = "connection closed"
        except TimeoutError:
            said = "no answer in 90 s"
        if connection is not None and not stays:
            connection[1].close()
            connection = None
        measured.statuses[kind][said] += 1
        measured.seconds[kind].append(time.monotonic() - began)
    if connection is not None:
        connection[1].close()


def resident(process: int) -> tuple[int, int]:
    """Bytes in memory of a process, and of those that it started."""
    own, others = 0, 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            told = dict(
                line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line
            )
        except OSError:  # it has just ended
            continue
        size = 1024 * int(told.get("VmRSS", "0 kB").split()[0])
        if told["Pid"] == str(process):
            own = size
        elif told["PPid"] == str(process):
            others += size
    return own, others


@contextmanager
def serving(library: Path) -> Iterator[tuple[int, int]]:
    """A process that serves a library, and its port."""
    command = [sys.executable, "-m", "polyglance", "serve", "-l", str(library), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().split()[-1]).port
        assert port is not None
        yield process.pid, port
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the service did not end as it should"


async def load(
    process: int, port: int, items: int, clients: int, seconds: float
) -> dict[str, object]:
    measured, most = Measured(), [0, 0]
    before, began, busy = resident(process)[0], time.monotonic(), round(os.getloadavg()[0], 1)

    async def watch() -> None:
        while True:
            for place, size in enumerate(resident(process)):
                most[place] = max(most[place], size)
            await asyncio.sleep(0.25)

    watching = asyncio.create_task(watch())
    ends = began + seconds
    await asyncio.gather(*(client(n, port, items, ends, measured) for n in range(clients)))
    watching.cancel()
    total: Counter[str] = sum(measured.statuses.values(), Counter())
    unexpected = {said for said in total if not said.isdecimal() or int(said) not in PROMISED}
    return {
        "clients": clients,
        "others' load": busy,
        "seconds": round(time.monotonic() - began, 1),
        "requests": sum(total.values()),
        "answers": dict(sorted(total.items())),
        "not promised": sorted(unexpected),
        "by kind": measured.figures(),
        "memory_mb": {
            "before": round(before / 1e6),
            "most": round(most[0] / 1e6),
            "after": round(resident(process)[0] / 1e6),
            "decoders, most": round(most[1] / 1e6),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path, help="another folder for serve_load.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "my.polyglance"
        with Library(place) as library:
            library.add(FOLDER)
            items = len(library)
        with serving(place) as (process, port):
            found = asyncio.run(load(process, port, items, given.clients, given.seconds))
    write_results("serve_load", {"pictures": items, **found}, given.out)
    print(found["answers"], found["memory_mb"])
    if found["not promised"]:
        sys.exit(f"not promised: {found['not promised']}")


if __name__ == "__main__":
    main()
