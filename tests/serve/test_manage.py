"""Adding folders from the page, on the machine itself; scans and the watcher."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient

from polyglance.demo.photographs import FOLDER
from polyglance.encoders import Encoder
from polyglance.search.library import Library
from polyglance.serve import file_manager, watching
from polyglance.serve.app import create_app
from polyglance.serve.proxies import PublicUrl, TrustedProxies
from polyglance.serve.scanning import ScanRunner
from polyglance.serve.watching import SETTLE_SECONDS, Settling, poll, watch
from serve.conftest import running_server

LOCAL = ("127.0.0.1", 50000)
PHOTOS = sorted(FOLDER.glob("*.webp"))


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """A folder with a picture, and a file that is none."""
    (tmp_path / "album").mkdir()
    shutil.copyfile(PHOTOS[0], tmp_path / "album" / "one.webp")
    (tmp_path / "album" / "torn.jpg").write_bytes(b"no picture")
    return tmp_path / "album"


@pytest.fixture
def own(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """An empty library."""
    monkeypatch.setenv("POLYGLANCE_CONFIG", str(tmp_path / "config"))
    with Library(tmp_path / "own.polyglance", model=encoder) as library:
        library.include()  # creates it
        yield library


@pytest.fixture
def local(own: Library) -> Iterator[TestClient]:
    """A client on the same machine."""
    app = create_app(own)
    yield TestClient(app, base_url="http://localhost", client=LOCAL)
    app.state.service.close()


def finished(client: TestClient) -> dict[str, Any]:
    """Return the scan once it has ended, as its events say."""
    events = client.get("/api/manage/scan/events").text.split("\n\n")
    scans = [json.loads(event.partition("data: ")[2]) for event in events if event]
    assert all(scan["state"] == "scanning" for scan in scans[:-1])
    last: dict[str, Any] = scans[-1]
    return last


def test_a_folder_is_added_scanned_and_removed(local: TestClient, album: Path) -> None:
    assert local.get("/api/library").json()["manages"] is True
    assert local.get("/api/manage/scan").json()["state"] == "idle"
    added = local.post("/api/manage/folders", json={"path": str(album)})
    assert added.status_code == 201, added.text
    [folder] = added.json()["folders"]
    assert (folder["path"], folder["folder"], folder["exists"]) == (str(album), "album", True)
    scan = finished(local)
    assert (scan["state"], scan["done"], scan["total"]) == ("done", 2, 2)
    assert (scan["added"], scan["unreadable"], scan["error"]) == (1, 1, None)
    assert scan["started"] <= scan["finished"]
    unreadable = local.get("/api/manage/unreadable").json()
    assert unreadable["total"] == 1
    [file] = unreadable["files"]
    assert (file["name"], file["folder"]) == ("torn.jpg", "album")
    assert file["reason"]
    [item] = local.get("/api/items").json()["items"]
    assert local.get(f"/api/items/{item['id']}/file").status_code == 200  # it is confirmed
    assert local.get(f"/api/items/{item['id']}/details").json()["added"].endswith("Z")
    again = local.post("/api/manage/scan")
    assert again.status_code == 202
    assert finished(local)["unchanged"] == 1
    removed = local.delete("/api/manage/folders", params={"path": str(album)})
    assert removed.json()["folders"] == []
    assert local.get("/api/library").json()["pictures"] == 0
    assert (album / "one.webp").exists()
    assert local.delete("/api/manage/folders", params={"path": str(album)}).status_code == 404


def test_folders_of_the_machine_are_listed(
    local: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("home/Pictures", "home/.hidden", "home/Ärger"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / "file.txt").touch()
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    found = local.get("/api/manage/directories").json()
    assert found["path"] == str(tmp_path / "home")
    assert found["parent"] == str(tmp_path)
    assert [one["name"] for one in found["directories"]] == ["Pictures", "Ärger"]
    assert [one["name"] for one in found["suggestions"]] == ["Pictures"]
    inside = local.get("/api/manage/directories", params={"path": found["directories"][0]["path"]})
    assert inside.json()["directories"] == []
    for path in ("relative", str(tmp_path / "none"), str(tmp_path / "home" / "file.txt"), "/\0"):
        assert local.get("/api/manage/directories", params={"path": path}).status_code == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"path": "none"}', 422),
        (b'{"path": "/nowhere at all"}', 422),
        (b'{"path": "/\\u0000"}', 422),
        (b'{"path": "/\\ud800"}', 422),
        (b'{"path": 1}', 422),
        (b'{"path": "/tmp", "more": 1}', 422),
        (b"[" * 50_000, 422),
        (b"\xff", 422),
        (b'{"path": "' + b"x" * 200_000 + b'"}', 413),
    ],
)
def test_bodies_that_are_none_are_refused(local: TestClient, body: bytes, status: int) -> None:
    headers = {"content-type": "application/json"}
    response = local.post("/api/manage/folders", content=body, headers=headers)
    assert response.status_code == status, response.text
    assert response.json()["error"].endswith(".")


def test_bodies_that_other_sites_can_send_are_refused(local: TestClient, album: Path) -> None:
    """A form on another site can send text/plain without asking the browser's permission."""
    body = json.dumps({"path": str(album)})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = local.post("/api/manage/folders", content=body, headers={"content-type": kind})
        assert response.status_code == 415
    foreign = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    for headers in (foreign, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
        response = local.post("/api/manage/folders", json={"path": str(album)}, headers=headers)
        assert response.status_code == 403
    assert local.get("/api/manage/folders").json()["folders"] == []


MANAGED = [
    ("GET", "folders"), ("POST", "folders"), ("DELETE", "folders?path=/"), ("GET", "scan"),
    ("POST", "scan"), ("DELETE", "scan"), ("GET", "scan/events"), ("GET", "unreadable"),
    ("GET", "directories"), ("PUT", "watching"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("client", "headers", "settings"),
    [
        (("192.168.1.7", 50000), {}, {}),
        (("testclient", 50000), {}, {}),
        (LOCAL, {"x-forwarded-for": "127.0.0.1"}, {}),
        (LOCAL, {"forwarded": "for=127.0.0.1"}, {}),
        (LOCAL, {"via": "1.1 proxy"}, {}),
        (LOCAL, {}, {"manage_folders": False}),
        (LOCAL, {}, {"loopback": False, "token": "a-token-that-is-long-enough"}),
        (LOCAL, {}, {"public_url": PublicUrl.parse("https://pictures.example")}),
        (LOCAL, {}, {"proxies": TrustedProxies(["127.0.0.1"])}),
    ],
)
def test_only_the_machine_itself_may_manage(
    library: Library, client: Any, headers: dict[str, str], settings: dict[str, Any]
) -> None:
    app = create_app(library, **settings)
    if token := settings.get("token"):
        headers = headers | {"authorization": f"Bearer {token}"}
    other = TestClient(app, base_url="http://localhost", client=client, headers=headers)
    assert other.get("/api/library").json()["manages"] is False
    for method, address in MANAGED:
        response = other.request(method, f"/api/manage/{address}", json={"path": "/tmp"})
        assert response.status_code == 403, address
        assert "on the machine itself only" in response.json()["error"]
    assert other.post("/api/items/1/reveal").status_code == 403


def test_a_library_that_cannot_be_written_is_not_managed(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(library), "read_only", True)
    client = TestClient(create_app(library), base_url="http://localhost", client=LOCAL)
    assert client.get("/api/library").json()["manages"] is False
    assert client.post("/api/manage/scan").status_code == 403


def test_the_folder_of_a_picture_is_opened(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = TestClient(create_app(library), base_url="http://localhost", client=LOCAL)
    [hit] = client.get("/api/search", params={"q": "a dog", "limit": 1}).json()["hits"]
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("sys.platform", "linux")
    assert client.post(f"/api/items/{hit['id']}/reveal").status_code == 204
    assert started == [["/usr/bin/xdg-open", str(photos / "holiday" / "animals")]]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    response = client.post(f"/api/items/{hit['id']}/reveal")
    assert response.status_code == 404
    assert "no file manager" in response.json()["error"]
    monkeypatch.setattr("sys.platform", "darwin")
    assert file_manager.command(Path("/a/-b.jpg")) == ["open", "-R", "/a/-b.jpg"]


def test_a_scan_can_be_stopped_and_goes_on_later(
    own: Library, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = ScanRunner(own)
    refresh, reached, go = own.refresh, threading.Event(), threading.Event()

    def slow(*paths: str, progress: Callable[[int, int], None], **settings: Any) -> Any:
        progress(0, 2)
        reached.set()
        go.wait(10)
        return refresh(*paths, progress=progress, **settings)

    monkeypatch.setattr(own, "refresh", slow)
    assert scans.add(str(album)).state == "scanning"
    assert reached.wait(10)
    assert scans.scan_all().id == 1  # the one that runs
    scans.stop()
    go.set()
    assert scans.wait_until_idle(30).state == "stopped"
    assert len(own) <= 1
    scans.scan_all()
    done = scans.wait_until_idle(30)
    assert (done.id, done.state, len(own)) == (2, "done", 1)


def test_a_scan_that_fails_says_why(own: Library, album: Path) -> None:
    scans = ScanRunner(own)
    own.include(album)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret path")

    own.refresh = broken  # type: ignore[method-assign]
    scans.scan_all()
    scan = scans.wait_until_idle(30)
    assert (scan.state, scan.error) == ("failed", "internal error: see the log")


def test_folders_that_nobody_confirmed_are_not_scanned(
    own: Library, album: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own.include(album)
    assert ScanRunner(own).folders == [str(album)]
    monkeypatch.setenv("POLYGLANCE_CONFIG", str(tmp_path / "of another user"))
    assert ScanRunner(own).folders == []


def test_files_settle_before_they_are_indexed(tmp_path: Path) -> None:
    now = 0.0
    settling = Settling(clock=lambda: now)
    growing, ready, gone = (tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg"))
    growing.write_bytes(b"1")
    ready.write_bytes(b"1")
    settling.add(map(str, (growing, ready, gone)))
    assert settling.take() == ([], [])
    now = SETTLE_SECONDS / 2
    growing.write_bytes(b"12")
    assert settling.take() == ([], [])
    now = SETTLE_SECONDS
    assert settling.take() == ([str(ready)], [str(gone)])
    growing.write_bytes(b"123")
    assert settling.take() == ([], [])
    now = 2 * SETTLE_SECONDS
    assert settling.take() == ([str(growing)], [])
    assert len(settling) == 0
    (tmp_path / "new").mkdir()  # moved here with what is in it
    (tmp_path / "new" / "d.jpg").touch()
    settling.add([str(tmp_path / "new")])
    now += SETTLE_SECONDS
    assert settling.take() == ([str(tmp_path / "new" / "d.jpg")], [])


@pytest.mark.parametrize("source", ["the system", "looking"])
def test_changes_are_noticed(tmp_path: Path, source: str) -> None:
    stop, old, new = threading.Event(), tmp_path / "old.jpg", tmp_path / "new.jpg"
    old.write_bytes(b"old")
    changes = (
        watch([str(tmp_path)], stop)
        if source == "the system"
        else poll([str(tmp_path)], stop, seconds=0.0)
    )
    noticed: set[str] = set()
    with closing(changes):
        next(changes)
        new.write_bytes(b"new")
        old.unlink()
        while not {str(old), str(new)} <= noticed:
            noticed.update(next(changes))
        stop.set()
        assert list(changes) in ([], [[]])


def test_new_files_of_watched_folders_are_found(
    own: Library, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(watching, "TICK_SECONDS", 0.05)
    app = create_app(own)
    with running_server(app) as url, httpx.Client(base_url=url, timeout=30) as client:
        client.post("/api/manage/folders", json={"path": str(album)}).raise_for_status()
        turned_on = client.put("/api/manage/watching", json={"watching": True})
        assert turned_on.json() == {"watching": True}

        def names() -> set[str]:
            app.state.service.catalog.browser._current.clear()
            return {item["name"] for item in client.get("/api/items").json()["items"]}

        def wait_for(expected: set[str]) -> None:
            deadline = time.monotonic() + 30
            while names() != expected:
                assert time.monotonic() < deadline, names()
                time.sleep(0.05)

        wait_for({"one.webp"})
        shutil.copyfile(PHOTOS[1], album / "two.webp")
        wait_for({"one.webp", "two.webp"})
        (album / "trip").mkdir()
        shutil.copyfile(PHOTOS[2], album / "trip" / "three.webp")
        wait_for({"one.webp", "two.webp", "three.webp"})
        (album / "two.webp").unlink()
        wait_for({"one.webp", "three.webp"})
        assert client.put("/api/manage/watching", json={"watching": False}).json() == {
            "watching": False
        }
    app.state.service.close()
