"""Requests and files that mean harm: a clear refusal each, and the service stays up."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from starlette.testclient import TestClient

from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.limits import Busy, ConcurrencyLimiter
from polyglance.serve.vector_tokens import to_text
from polyglance.vision.uploads import MAX_BYTES

IMAGE = {"content-type": "image/png"}


def refused(answer: object, *statuses: int) -> str:
    """The sentence of a refusal, which tells nothing of the machine."""
    assert answer.status_code in statuses, answer.text  # type: ignore[attr-defined]
    said = answer.json()  # type: ignore[attr-defined]
    assert said.keys() == {"error"}
    assert said["error"].endswith(".")
    for secret in ("/tmp", "Traceback", "polyglance.", ".py"):
        assert secret not in said["error"]
    return str(said["error"])


def number(client: TestClient, name: str) -> int:
    """Of a picture, by the name of its file."""
    hits = client.get("/api/search", params={"q": name}).json()["hits"]
    return next(int(hit["id"]) for hit in hits if hit["name"] == f"{name}.webp")


@pytest.mark.parametrize(
    "item",
    [
        "..", "../1", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f", "/etc/passwd", "1/../../2", "0", "-1",
        "1e3", "٣", "%00", "99999999999999999999999", "999999", "' OR 1=1 --", "1%00",
    ],
)  # fmt: skip
@pytest.mark.parametrize("what", ["", "/thumbnail", "/picture", "/clip"])
def test_only_numbers_of_hits_lead_to_files(client: TestClient, item: str, what: str) -> None:
    refused(client.get(f"/api/items/{item}{what}"), 404, 422)


@pytest.mark.parametrize(
    "folder", ["..", "holiday/../..", "/etc", "holiday//etc", "no such", "~", "holiday (2)", "%"]
)
def test_folders_are_those_of_the_library(client: TestClient, folder: str) -> None:
    answer = client.get("/api/search", params={"q": "dog", "folder": folder})
    if answer.status_code == 200:  # a folder of the library that would hold nothing
        assert answer.json()["hits"] == []
    else:
        refused(answer, 422)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "nothing to look for"),
        ({"q": ""}, "empty"),
        ({"q": " \t\n"}, "empty"),
        ({"not": "dog"}, "nothing to look for"),
        ({"q": "x" * 1001}, "1000"),
        ({"q": "x" * 10_000}, "1000"),
        ({"q": "a\x00b"}, "control"),
        ({"q": "\x1b[2Jdog"}, "control"),
        ({"q": "dog", "not": "\x07"}, "control"),
        ({"q": "dog", "kind": "sound"}, "kind"),
        ({"q": "dog", "since": "yesterday"}, "since"),
        ({"q": "dog", "since": "2024-13"}, "date"),
        ({"q": "dog", "until": "٢٠٢٤"}, "until"),
        ({"q": "dog", "limit": "0"}, "limit"),
        ({"q": "dog", "limit": "101"}, "limit"),
        ({"q": "dog", "offset": "-1"}, "offset"),
        ({"q": "dog", "offset": "1000"}, "offset"),
        ({"q": "dog", "like": "../1"}, "like"),
        ({"q": "dog", "like": "pAAAA"}, "like"),
        ({"q": "dog", "like": "pAAA!"}, "like"),
        ({"q": "dog", "language": "../de"}, "language"),
        ({"q": "dog", "path": "/etc"}, "path"),
        ({"q": "dog", "not": ["x"] * 9}, "not"),
        ({"q": "dog", "like": ["1"] * 5}, "like"),
    ],
)
def test_what_is_not_understood_is_said(
    client: TestClient, asked: dict[str, str], said: str
) -> None:
    assert said in refused(client.get("/api/search", params=asked), 422)


def test_vectors_that_are_none_are_refused(client: TestClient, library: Library) -> None:
    import numpy as np

    width = library.info().manifest.width
    for bad in (np.zeros(width), np.full(width, np.nan), np.full(width, np.inf), np.ones(width)):
        refused(client.get("/api/search", params={"like": to_text(bad)}), 422)
    refused(client.get("/api/search", params={"like": "999999999"}), 404)


def test_long_queries_of_every_script_are_answered(client: TestClient) -> None:
    for text in ("犬" * 1000, "🐶" * 1000, "‮a‬" * 200, "\u0301" * 1000, "a " * 500, "' OR 1=1;--"):
        assert client.get("/api/search", params={"q": text}).status_code == 200


def broken_png(width: int, height: int) -> bytes:
    """A PNG whose header promises pixels that are not there."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    crc = struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + crc


def test_uploads_that_are_no_pictures_are_refused(client: TestClient) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    for data in (
        b"", b"GIF89a", b"\x00" * 1000, svg, b"<html>", broken_png(8, 8), b"\xff\xd8\xff" * 99,
        broken_png(60_000, 60_000), (FOLDER / "horse.webp").read_bytes()[:300],
    ):  # fmt: skip
        refused(client.post("/api/pictures", content=data, headers=IMAGE), 415)
    assert client.get("/api/search", params={"q": "a horse"}).status_code == 200


def test_an_upload_of_a_lying_kind_is_taken_for_what_it_is(client: TestClient) -> None:
    out = io.BytesIO()
    Image.open(FOLDER / "horse.webp").convert("RGB").save(out, "JPEG")
    answer = client.post("/api/pictures", content=out.getvalue(), headers=IMAGE)
    assert answer.status_code == 200


def test_too_large_an_upload_is_refused_by_its_word(client: TestClient) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(MAX_BYTES)
    assert "20,000,000" in refused(client.post("/api/pictures", content=data, headers=IMAGE), 413)


def memory() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_hundred_megabytes_without_a_length_are_cut_off(address: str) -> None:
    host, port = urlsplit(address).hostname, urlsplit(address).port
    before, sent = memory(), 0
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(
            b"POST /api/pictures HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        try:
            while sent < 100_000_000:
                connection.sendall(chunk)
                sent += 0x10000
        except OSError:
            pass
        answer = b""
        try:
            while part := connection.recv(4096):
                answer += part
        except OSError:
            pass
    assert sent < 60_000_000  # what lies in the buffers of the system comes on top
    assert not answer or answer.startswith(b"HTTP/1.1 413")
    assert memory() - before < 100_000_000


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"POST /api/pictures HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/pictures HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
    ],
)
def test_mangled_requests_get_a_4xx(address: str, request_: bytes) -> None:
    host, port = urlsplit(address).hostname, urlsplit(address).port
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(request_)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(64).startswith(b"HTTP/1.1 4")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Library, TestClient, Path]]:
    """A library of its own, whose files may be tampered with."""
    folder = tmp_path / "shown"
    folder.mkdir()
    for name in ("horse", "beach"):
        shutil.copyfile(FOLDER / f"{name}.webp", folder / f"{name}.webp")
    with Library(tmp_path / "small.polyglance", threads=1) as library:
        library.add(folder)
        yield library, TestClient(create_app(library), base_url="http://localhost"), folder


def test_files_that_lead_out_of_their_folder_are_not_given_out(
    small: tuple[Library, TestClient, Path],
) -> None:
    _, client, folder = small
    secret = folder.parent / "secret.webp"
    shutil.copyfile(FOLDER / "cow.webp", secret)
    horse = number(client, "horse")
    addresses = [f"/api/items/{horse}/{what}" for what in ("picture", "thumbnail?size=640")]
    for make in (
        lambda: (folder / "horse.webp").symlink_to(secret),
        lambda: (folder / "horse.webp").symlink_to("/proc/self/environ"),
        lambda: os.mkfifo(folder / "horse.webp"),
        lambda: None,
        lambda: (folder / "horse.webp").mkdir(),
    ):
        (folder / "horse.webp").unlink(missing_ok=True)
        make()
        for address in addresses:
            refused(client.get(address), 404)


def test_a_folder_that_became_a_link_gives_out_nothing(
    small: tuple[Library, TestClient, Path],
) -> None:
    library, client, folder = small
    (folder / "inner").mkdir()
    shutil.copyfile(FOLDER / "cow.webp", folder / "inner" / "cow.webp")
    library.add(folder)
    cow = number(client, "cow")
    assert client.get(f"/api/items/{cow}/picture").status_code == 200
    elsewhere = folder.parent / "elsewhere"
    (folder / "inner").rename(elsewhere)
    (folder / "inner").symlink_to(elsewhere)
    refused(client.get(f"/api/items/{cow}/picture"), 404)


def test_what_was_removed_is_given_out_no_more(small: tuple[Library, TestClient, Path]) -> None:
    library, client, folder = small
    horse = number(client, "horse")
    address = f"/api/items/{horse}/thumbnail"
    assert client.get(address).status_code == 200
    library.remove(folder / "horse.webp")
    refused(client.get(address), 404)


def test_a_page_posing_as_a_picture_stays_a_picture(
    small: tuple[Library, TestClient, Path],
) -> None:
    _, client, folder = small
    horse = number(client, "horse")
    (folder / "horse.webp").write_bytes(b"<script>alert(1)</script>")
    answer = client.get(f"/api/items/{horse}/picture")
    assert answer.headers["content-type"] == "image/webp"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_queue_has_an_end() -> None:
    async def scene() -> tuple[int, int]:
        desk = ConcurrencyLimiter(1, max_waiting=2, timeout=5)
        release = asyncio.Event()

        async def sit() -> bool:
            try:
                async with desk.slot():
                    await release.wait()
                    return True
            except Busy:
                return False

        sitting = [asyncio.create_task(sit()) for _ in range(10)]
        await asyncio.sleep(0.05)
        turned_away = sum(task.done() for task in sitting)
        release.set()
        served = await asyncio.gather(*sitting)
        return turned_away, sum(served)

    assert asyncio.run(scene()) == (7, 3)


def test_who_waits_too_long_is_told_when_to_come_back() -> None:
    async def scene() -> Busy:
        desk = ConcurrencyLimiter(1, max_waiting=2, timeout=0.02)
        async with desk.slot():
            with pytest.raises(Busy) as caught:
                async with desk.slot():
                    pass
        async with desk.slot():  # and the desk is free again
            return caught.value

    busy = asyncio.run(scene())
    assert (busy.status, busy.headers["retry-after"]) == (503, "2")
