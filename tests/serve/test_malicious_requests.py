"""Malicious requests and files: each is refused with one sentence, and the server stays up."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import socket
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from starlette.testclient import TestClient

from polyglance.demo.photographs import FOLDER
from polyglance.encoders import Encoder
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.vector_tokens import encode_token
from polyglance.vision.uploads import MAX_BYTES

IMAGE = {"content-type": "image/png"}


def refusal(response: object, *statuses: int) -> str:
    """Return the message of a refusal, and check that it reveals nothing about the server."""
    assert response.status_code in statuses, response.text  # type: ignore[attr-defined]
    body = response.json()  # type: ignore[attr-defined]
    assert body.keys() == {"error"}
    assert body["error"].endswith(".")
    for secret in (tempfile.gettempdir(), "Traceback", "polyglance.", ".py"):
        assert secret not in body["error"]
    return str(body["error"])


def item_id(client: TestClient, name: str) -> int:
    """Return the id of a picture by its file name."""
    hits = client.get("/api/search", params={"q": name}).json()["hits"]
    return next(int(hit["id"]) for hit in hits if hit["name"] == f"{name}.webp")


@pytest.mark.parametrize(
    "item",
    [
        "..", "../1", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f", "/etc/passwd", "1/../../2", "0", "-1",
        "1e3", "٣", "%00", "99999999999999999999999", "999999", "' OR 1=1 --", "1%00",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "/thumbnail",
        "/picture",
        "/clip",
        "/file",
        "/details",
        "/similar",
        "/neighbors",
        "/stack",
    ],
)
def test_only_item_ids_open_files(client: TestClient, item: str, endpoint: str) -> None:
    refusal(client.get(f"/api/items/{item}{endpoint}"), 404, 422)


@pytest.mark.parametrize(
    "folder", ["..", "holiday/../..", "/etc", "holiday//etc", "no such", "~", "holiday (2)", "%"]
)
def test_only_folders_of_the_library_are_accepted(client: TestClient, folder: str) -> None:
    response = client.get("/api/search", params={"q": "dog", "folder": folder})
    if response.status_code == 200:  # an empty folder of the library
        assert response.json()["hits"] == []
    else:
        refusal(response, 422)
    for address in ("items", "timeline", "facets"):
        listed = client.get(f"/api/{address}", params={"folder": folder})
        if listed.status_code == 200:
            assert not any(listed.json().get(name) for name in ("items", "buckets", "years"))
        else:
            refusal(listed, 422)
    refusal(client.get("/api/folders", params={"parent": folder}), 404)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "search is empty"),
        ({"q": ""}, "is empty"),
        ({"q": " \t\n"}, "empty"),
        ({"folder": "holiday"}, "search is empty"),
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
def test_invalid_parameters_are_named(
    client: TestClient, params: dict[str, str], message: str
) -> None:
    assert message in refusal(client.get("/api/search", params=params), 422)


def test_invalid_vectors_are_refused(client: TestClient, library: Library) -> None:
    import numpy as np

    width = library.info().model_info.width
    for bad in (np.zeros(width), np.full(width, np.nan), np.full(width, np.inf), np.ones(width)):
        refusal(client.get("/api/search", params={"like": encode_token(bad)}), 422)
    refusal(client.get("/api/search", params={"like": "999999999"}), 404)


def test_long_queries_in_any_script_are_answered(client: TestClient) -> None:
    for text in ("犬" * 1000, "🐶‮a‬" * 250, "\u0301" * 1000, "' OR 1=1;--"):
        assert client.get("/api/search", params={"q": text}).status_code == 200


def broken_png(width: int, height: int) -> bytes:
    """Return a PNG that ends after its header."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    crc = struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + crc


def test_uploads_that_are_not_pictures_are_refused(client: TestClient) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    for data in (
        b"", b"GIF89a", b"\x00" * 1000, svg, b"<html>", broken_png(8, 8), b"\xff\xd8\xff" * 99,
        broken_png(60_000, 60_000), (FOLDER / "horse.webp").read_bytes()[:300],
    ):  # fmt: skip
        refusal(client.post("/api/pictures", content=data, headers=IMAGE), 415)
    assert client.get("/api/search", params={"q": "a horse"}).status_code == 200


def test_uploads_are_recognised_by_their_bytes(client: TestClient) -> None:
    out = io.BytesIO()
    Image.open(FOLDER / "horse.webp").convert("RGB").save(out, "JPEG")
    response = client.post("/api/pictures", content=out.getvalue(), headers=IMAGE)
    assert response.status_code == 200


def test_large_uploads_are_refused_by_content_length(client: TestClient) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(MAX_BYTES)
    assert "20,000,000" in refusal(client.post("/api/pictures", content=data, headers=IMAGE), 413)


def memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_large_uploads_without_content_length_are_cut_off(base_url: str) -> None:
    host, port = urlsplit(base_url).hostname, urlsplit(base_url).port
    before = memory()
    chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
    with socket.create_connection((host, port)) as connection:
        connection.sendall(
            b"POST /api/pictures HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(100):
            connection.sendall(chunk)
        response = b""
        while part := connection.recv(4096):
            response += part
    assert response.startswith(b"HTTP/1.1 413")
    assert memory() - before < 100_000_000


def test_an_aborted_upload_is_not_logged_as_an_error(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[object] = []
    parts = [{"type": "http.request", "body": b"GIF89a", "more_body": True}]

    async def receive() -> dict[str, object]:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: object) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/pictures", "raw_path": b"/api/pictures",
        "query_string": b"", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
        "scheme": "http", "server": ("127.0.0.1", 80), "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    asyncio.run(create_app(library)(scope, receive, send))  # type: ignore[arg-type]
    assert (sent, caplog.records) == ([], [])


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
def test_malformed_requests_get_a_4xx(base_url: str, request_: bytes) -> None:
    host, port = urlsplit(base_url).hostname, urlsplit(base_url).port
    with socket.create_connection((host, port)) as connection:
        connection.sendall(request_)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(64).startswith(b"HTTP/1.1 4")


@pytest.fixture
def small_library(tmp_path: Path, encoder: Encoder) -> Iterator[tuple[Library, TestClient, Path]]:
    """A small library whose files may be changed."""
    folder = tmp_path / "shown"
    folder.mkdir()
    for name in ("horse", "beach"):
        shutil.copyfile(FOLDER / f"{name}.webp", folder / f"{name}.webp")
    with Library(tmp_path / "small.polyglance", model=encoder) as library:
        library.add(folder)
        yield library, TestClient(create_app(library), base_url="http://localhost"), folder


def test_links_out_of_the_folder_are_not_served(
    small_library: tuple[Library, TestClient, Path],
) -> None:
    _, client, folder = small_library
    secret = folder.parent / "secret.webp"
    shutil.copyfile(FOLDER / "cow.webp", secret)
    horse = item_id(client, "horse")
    addresses = [f"/api/items/{horse}/{endpoint}" for endpoint in ("picture", "thumbnail?size=640")]
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
            refusal(client.get(address), 404)


def test_a_folder_that_became_a_link_is_not_served(
    small_library: tuple[Library, TestClient, Path],
) -> None:
    library, client, folder = small_library
    (folder / "inner").mkdir()
    shutil.copyfile(FOLDER / "cow.webp", folder / "inner" / "cow.webp")
    library.add(folder)
    cow = item_id(client, "cow")
    assert client.get(f"/api/items/{cow}/picture").status_code == 200
    elsewhere = folder.parent / "elsewhere"
    (folder / "inner").rename(elsewhere)
    (folder / "inner").symlink_to(elsewhere)
    refusal(client.get(f"/api/items/{cow}/picture"), 404)


def test_removed_items_are_not_served(small_library: tuple[Library, TestClient, Path]) -> None:
    library, client, folder = small_library
    horse = item_id(client, "horse")
    address = f"/api/items/{horse}/thumbnail"
    assert client.get(address).status_code == 200
    library.remove(folder / "horse.webp")
    refusal(client.get(address), 404)


def test_html_in_a_picture_file_is_not_run(
    small_library: tuple[Library, TestClient, Path],
) -> None:
    _, client, folder = small_library
    horse = item_id(client, "horse")
    (folder / "horse.webp").write_bytes(b"<script>alert(1)</script>")
    response = client.get(f"/api/items/{horse}/picture")
    assert response.headers["content-type"] == "image/webp"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in response.headers["content-security-policy"]
