"""Browsing, details and files of items over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from polyglance.search.library import Library
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Details, Entry, FileSignature, Item, ModelInfo
from polyglance.serve.app import create_app
from polyglance.serve.item_json import with_offset

LOCAL = ("127.0.0.1", 50000)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a library of 300 items whose files are not there."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "Photos").mkdir()
    path, vectors = folder / "many.polyglance", np.eye(8, dtype=np.float32)
    with Library(path) as opened:
        store = opened._store(create=True, like=ModelInfo("none", "", "f", 8, "l"))
        opened.include(folder / "Photos")
        store.put(
            Entry(
                Item(
                    f"{folder / 'Photos'}/{2000 + number % 5}/{number}.jpg",
                    "clip" if number % 30 == 0 else "picture",
                    FileSignature(1000 + number, 1),
                    f"{number:x}",
                    f"{2000 + number % 5}-{1 + number % 12:02}-{1 + number % 28:02}T10:00:00",
                    40,
                    30,
                    2.0 if number % 30 == 0 else None,
                ),
                vectors[[number % 8]],
                ((0.0, 2.0),) if number % 30 == 0 else (),
                details=Details(
                    camera=f"Camera {number % 3}",
                    place="Rom" if number % 2 else None,
                    latitude=41.9,
                    longitude=12.5,
                    ocr_text="EXIT" if number == 7 else "",
                ),
            )
            for number in range(300)
        )
        yield TestClient(create_app(opened), base_url="http://localhost")


def get(client: TestClient, address: str, **params: object) -> Any:
    response = client.get(f"/api/{address}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_timeline_says_where_each_month_begins(many: TestClient) -> None:
    timeline = get(many, "timeline")
    assert timeline["total"] == 300
    for bucket in timeline["buckets"][::7]:
        page = get(many, "items", offset=bucket["offset"], limit=bucket["count"])
        assert page["snapshot"] == timeline["snapshot"]
        months = {item["taken"][:7] for item in page["items"]}
        assert months == {bucket["date"]}
        ranks = [item["rank"] for item in page["items"]]
        assert ranks == list(range(bucket["offset"], bucket["offset"] + bucket["count"]))
    taken = [item["taken"] for item in get(many, "items", limit=300)["items"]]
    assert taken == sorted(taken, reverse=True)
    assert get(many, "items", offset=10_000)["items"] == []


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"kind": "clip"}, 10),
        ({"folder": "Photos/2003"}, 60),
        ({"folder": ["Photos/2000", "Photos/2001"], "kind": "picture"}, 110),
        ({"since": "2004"}, 60),
        ({"camera": "Camera 1", "place": "Rom"}, 50),
        ({"camera": ["Camera 1", "Camera 2"], "until": "2000"}, 40),
        ({"place": "Paris"}, 0),
    ],
)  # fmt: skip
def test_filters_work_without_words(
    many: TestClient, filters: dict[str, object], count: int
) -> None:
    timeline, page = get(many, "timeline", **filters), get(many, "items", limit=500, **filters)
    assert timeline["total"] == page["total"] == len(page["items"]) == count
    assert sum(bucket["count"] for bucket in timeline["buckets"]) == count


def test_what_was_added_last_is_first(many: TestClient) -> None:
    items = get(many, "items", sort="added", limit=3)["items"]
    assert [item["name"] for item in items] == ["299.jpg", "298.jpg", "297.jpg"]


def test_folders_have_counts_and_their_newest_picture_as_cover(many: TestClient) -> None:
    [root] = get(many, "folders")["folders"]
    assert (root["folder"], root["files"], root["folders"]) == ("Photos", 300, 5)
    years = get(many, "folders", parent="Photos")["folders"]
    assert [year["name"] for year in years] == [str(2000 + one) for one in range(5)]
    for year in years:
        [newest] = get(many, "items", folder=year["folder"], limit=1)["items"]
        assert (year["files"], year["folders"], year["cover"]) == (60, 0, newest["id"])
    assert many.get("/api/folders", params={"parent": "Photos/none"}).status_code == 404


def test_facets_list_what_filters_can_be(many: TestClient) -> None:
    facets = get(many, "facets")
    assert facets["cameras"] == [{"name": f"Camera {one}", "files": 100} for one in range(3)]
    assert facets["places"] == [{"name": "Rom", "files": 150}]
    assert [year["name"] for year in facets["years"]] == ["2004", "2003", "2002", "2001", "2000"]


def test_neighbors_are_those_of_the_list(many: TestClient) -> None:
    page = get(many, "items", kind="picture", limit=100)
    before, item, after = page["items"][40:43]
    found = get(many, f"items/{item['id']}/neighbors", kind="picture", snapshot=page["snapshot"])
    assert found["rank"] == 41
    assert (found["previous"]["id"], found["next"]["id"]) == (before["id"], after["id"])
    first = get(many, f"items/{page['items'][0]['id']}/neighbors", kind="picture")
    assert (first["rank"], first["previous"]) == (0, None)
    elsewhere = get(many, f"items/{item['id']}/neighbors", kind="clip")
    assert (elsewhere["rank"], elsewhere["next"]) == (None, None)


def test_details_of_an_item(many: TestClient) -> None:
    [item] = [one for one in get(many, "items", limit=300)["items"] if one["name"] == "7.jpg"]
    details = get(many, f"items/{item['id']}/details")
    assert {key: details[key] for key in ("bytes", "camera", "place", "latitude", "text")} == {
        "bytes": 1007, "camera": "Camera 1", "place": "Rom", "latitude": 41.9, "text": "EXIT",
    }  # fmt: skip
    assert datetime.fromisoformat(str(details["added"])).utcoffset() is not None
    assert details["taken"] == item["taken"]


def test_a_list_stays_the_same_while_files_are_added(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.polyglance", ModelInfo("none", "", "f", 8, "l"))
    unit = np.eye(8, dtype=np.float32)

    def entry(number: int) -> Entry:
        taken = f"2020-01-01T00:00:{number:02}"
        item = Item(f"/p/{number}.jpg", "picture", FileSignature(1, 1), f"{number}", taken, 1, 1)
        return Entry(item, unit[[0]])

    store.put(entry(number) for number in range(10))
    with Library(tmp_path / "a.polyglance") as opened:
        client = TestClient(create_app(opened), base_url="http://localhost")
        first = get(client, "items", limit=5)
        store.put([replace(entry(11)), entry(12)])
        opened.browser._current.clear()  # as after two seconds
        newer = get(client, "items", limit=5)
        assert (newer["total"], newer["items"][0]["name"]) == (12, "12.jpg")
        assert newer["snapshot"] != first["snapshot"]
        rest = get(client, "items", offset=5, limit=5, snapshot=first["snapshot"])
        names = [item["name"] for item in [*first["items"], *rest["items"]]]
        assert names == [f"{number}.jpg" for number in range(9, -1, -1)]
        unknown = get(client, "items", snapshot="0" * 18)
        assert unknown["snapshot"] == newer["snapshot"]
    store.close()


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (datetime(2024, 7, 31, 18, 5), "2024-07-31T18:05:00"),
        (datetime(1, 1, 1), "0001-01-01T00:00:00"),
        (datetime(9999, 12, 31, 23, 59, 59), "9999-12-31T23:59:59"),
        (datetime(1850, 1, 1), "1850-01-01T00:00:00"),
    ],
)
def test_times_have_an_offset_and_stay_as_the_camera_had_them(
    taken: datetime, expected: str
) -> None:
    text = with_offset(taken).isoformat()
    assert text.startswith(expected)
    assert re.fullmatch(r"[0-9T:-]{19}[+-][0-9]{2}:[0-9]{2}", text)


def test_similar_pictures_leave_the_picture_out(client: TestClient) -> None:
    [hit] = client.get("/api/search", params={"q": "a dog", "limit": 1}).json()["hits"]
    hits = get(client, f"items/{hit['id']}/similar", limit=3)["hits"]
    assert len(hits) == 3
    assert hit["name"] not in [one["name"] for one in hits]


def test_the_original_is_downloaded_under_its_name(client: TestClient, photos: Path) -> None:
    [hit] = client.get("/api/search", params={"q": "a dog", "limit": 1}).json()["hits"]
    response = client.get(f"/api/items/{hit['id']}/file")
    name = response.headers["content-disposition"]
    assert name == f"attachment; filename*=UTF-8''{hit['name']}"
    assert response.headers["content-security-policy"].endswith("sandbox")
    [file] = photos.rglob(hit["name"])
    assert response.content == file.read_bytes()
    part = client.get(f"/api/items/{hit['id']}/file", headers={"range": "bytes=2-5"})
    assert (part.status_code, part.content) == (206, file.read_bytes()[2:6])


def test_every_get_answers_head(client: TestClient) -> None:
    [hit] = client.get("/api/search", params={"q": "a dog", "limit": 1}).json()["hits"]
    addresses = ["/", "/api/library", "/api/timeline", "/docs", "/openapi.json", "/api/none"]
    addresses += [f"/api/items/{hit['id']}{end}" for end in ("", "/thumbnail", "/file", "/picture")]
    for address in addresses:
        whole, head = client.get(address), client.head(address)
        assert head.status_code == whole.status_code, address
        assert head.content == b""
        for name in ("content-length", "content-type", "etag"):
            assert head.headers.get(name) == whole.headers.get(name), (address, name)
    assert client.post("/api/library").status_code == 405
