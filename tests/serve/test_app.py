"""The interface for programs."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import polyglance
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Entry, FileSignature, Item, LibraryUnavailableError, ModelInfo
from polyglance.serve.app import create_app
from polyglance.serve.catalog import OVERVIEW_SECONDS, LibraryCatalog


def names(client: TestClient, **asked: object) -> list[str]:
    answer = client.get("/api/search", params=asked)
    assert answer.status_code == 200, answer.text
    return [hit["name"].partition(".")[0] for hit in answer.json()["hits"]]


def number(client: TestClient, text: str, **asked: object) -> int:
    hits = client.get("/api/search", params={"q": text, "limit": 1, **asked}).json()["hits"]
    return int(hits[0]["id"])


def clip_number(client: TestClient) -> int:
    return number(client, "a rocket", kind="clip")


def uploaded(client: TestClient, name: str) -> str:
    answer = client.post(
        "/api/pictures",
        content=(FOLDER / f"{name}.webp").read_bytes(),
        headers={"content-type": "image/webp"},
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["picture"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("zwei Giraffen zwischen Bäumen", "giraffes"),
        ("夜晚水边的高楼大厦", "city-night"),
        ("زرافتان بين الأشجار", "giraffes"),
        ("une pile de crêpes sur une assiette", "pancakes"),
    ],
)
def test_words_of_any_language_find_what_they_say(
    client: TestClient, query: str, expected: str
) -> None:
    assert expected in names(client, q=query, limit=2)


def test_hits_are_those_of_the_library(client: TestClient, library: Library) -> None:
    answer = client.get("/api/search", params={"q": "a dog", "limit": 10}).json()
    expected = library.search("a dog", k=10)
    assert [hit["name"] for hit in answer["hits"]] == [hit.path.name for hit in expected]
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx(
        [hit.score for hit in expected], abs=1e-4
    )


def test_pages_join_into_the_whole(client: TestClient) -> None:
    whole = names(client, q="a cat", limit=20)
    pages = [names(client, q="a cat", limit=8, offset=start) for start in (0, 8, 16)]
    assert [name for page in pages for name in page][:20] == whole
    last = client.get("/api/search", params={"q": "a cat", "limit": 20, "offset": 20}).json()
    assert last["more"] is False
    assert len(last["hits"]) == 33 - 20


def test_more_like_a_hit_begins_with_itself(client: TestClient) -> None:
    horse = number(client, "a horse")
    assert names(client, like=horse, limit=1) == ["horse"]


def test_an_uploaded_picture_is_found_and_goes_by_a_text_that_stays_true(
    client: TestClient,
) -> None:
    remembered = uploaded(client, "penguin")
    assert names(client, like=remembered, limit=1) == ["penguin"]
    score = client.get("/api/search", params={"like": remembered}).json()["hits"][0]["score"]
    assert score == pytest.approx(1, abs=0.01)


def test_words_and_pictures_are_added_as_the_library_does(
    client: TestClient, library: Library
) -> None:
    city = Image.open(FOLDER / "city-sunset.webp").convert("RGB")
    hits = library.search("at night", picture=city, without="a lake", k=10)
    expected = [hit.path.stem for hit in hits]
    asked = {"q": "at night", "like": uploaded(client, "city-sunset"), "not": "a lake"}
    assert names(client, **asked, limit=10) == expected


def test_what_is_not_wanted_is_taken_away(client: TestClient) -> None:
    with_dogs = names(client, q="a dog", limit=4)
    assert "dogs-at-door" in with_dogs
    assert names(client, q="a dog", **{"not": "a door"}, limit=4) != with_dogs
    first = number(client, "a dog")
    assert names(client, q="a dog", unlike=first, limit=1) != names(client, q="a dog", limit=1)


def test_filters(client: TestClient) -> None:
    assert set(names(client, q="a city", folder="holiday/animals")).isdisjoint({"city-night"})
    assert len(names(client, q="a city", folder="holiday", limit=100)) == 32
    assert names(client, q="a city", kind="clip") == ["journey"]
    assert names(client, q="a city", until="1999") == []
    assert len(names(client, q="a city", since="2000", limit=100)) == 33


def test_a_library_that_is_away_is_told_without_its_place(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise LibraryUnavailableError("postgresql://db.example/photos does not answer")

    monkeypatch.setattr(Library, "search", away)
    answer = client.get("/api/search", params={"q": "a horse"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "does not answer" in answer.json()["error"]
    assert "example" not in answer.text


def test_a_clip_is_found_at_the_span_that_fits(client: TestClient) -> None:
    for query, start in (("a beach", 0), ("an orchestra plays", 3), ("a rocket", 6)):
        answer = client.get("/api/search", params={"q": query, "kind": "clip"}).json()
        [hit] = answer["hits"]
        assert hit["span"][0] == pytest.approx(start, abs=0.5)
    params = {"q": "a rocket", "kind": "clip", "spans": True}
    assert len(client.get("/api/search", params=params).json()["hits"]) == 3


def test_the_library_tells_its_folders_without_their_places(client: TestClient) -> None:
    info = client.get("/api/library").json()
    assert (info["pictures"], info["clips"]) == (32, 1)
    assert info["folders"] == [
        {"folder": "films", "files": 1},
        {"folder": "holiday", "files": 32},
        {"folder": "holiday/animals", "files": 18},
    ]


def test_counting_waits_while_others_write(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = LibraryCatalog(library)
    first = shelf.overview()
    revisions = iter(range(100))
    monkeypatch.setattr(Library, "revision", property(lambda _: next(revisions)))
    assert shelf.overview() is first
    later = time.monotonic() + OVERVIEW_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    again = shelf.overview()
    assert again is not first
    assert again == first


def test_a_file_that_a_manifest_named_is_given_out_but_no_link(tmp_path: Path) -> None:
    picture = tmp_path / "duck.webp"
    shutil.copyfile(FOLDER / "duck.webp", picture)
    item = Item(
        picture.as_posix(),
        "picture",
        FileSignature(1, 1),
        "content",
        "2024-01-01T00:00:00",
        640,
        480,
    )
    vector = np.ones((1, 384), np.float32) / 384**0.5
    place = tmp_path / "my.polyglance"
    encoder = polyglance.load(threads=1)
    store = SqliteStore(
        place, ModelInfo(encoder.name, encoder.name, encoder.fingerprint, 384, "some-name")
    )
    store.put([Entry(item, vector)])
    store.close()
    with Library(place, threads=1) as library:
        asking = TestClient(create_app(library), base_url="http://localhost")
        there = asking.get("/api/items/1")
        assert (there.status_code, there.json()["folder"]) == (200, "")
        assert asking.get("/api/items/1/picture").status_code == 200
        picture.rename(tmp_path / "elsewhere.webp")
        picture.symlink_to(tmp_path / "elsewhere.webp")
        assert asking.get("/api/items/1/picture").status_code == 404


def test_languages_say_how_they_run(client: TestClient) -> None:
    told = {one["code"]: one["direction"] for one in client.get("/api/languages").json()}
    assert set(told) == {"en", "de", "fr", "cs", "pt", "zh", "ar"}
    assert [code for code, direction in told.items() if direction == "rtl"] == ["ar"]


def test_an_item_is_told_as_its_hit_is(client: TestClient) -> None:
    hit = client.get("/api/search", params={"q": "a horse", "limit": 1}).json()["hits"][0]
    del hit["score"]
    assert client.get(f"/api/items/{hit['id']}").json() == hit
    assert (hit["folder"], hit["name"]) == ("holiday/animals", "horse.webp")


def test_thumbnails_are_small_and_those_of_spans_differ(client: TestClient) -> None:
    horse = number(client, "a horse")
    for size in (256, 640):
        answer = client.get(f"/api/items/{horse}/thumbnail", params={"size": size})
        assert answer.headers["content-type"] == "image/webp"
        assert max(Image.open(io.BytesIO(answer.content)).size) <= size
        again = client.get(answer.url, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    spans = {
        client.get(f"/api/items/{number(client, text, kind='clip')}/thumbnail").content
        for text in ("a beach", "a rocket")
    }
    assert len(spans) == 2


def test_a_picture_comes_as_its_file(client: TestClient) -> None:
    answer = client.get(f"/api/items/{number(client, 'a horse')}/picture")
    assert answer.headers["content-type"] == "image/webp"
    assert answer.content == (FOLDER / "horse.webp").read_bytes()
    again = client.get(answer.url.path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_clips_come_in_ranges(client: TestClient, photos: Path) -> None:
    whole = (photos / "films" / "journey.webm").read_bytes()
    address = f"/api/items/{clip_number(client)}/clip"
    assert client.get(address).content == whole
    for asked, start, stop in (
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, len(whole)),
        ("bytes=-50", len(whole) - 50, len(whole)),
        (f"bytes=10-{10 * len(whole)}", 10, len(whole)),
    ):
        part = client.get(address, headers={"range": asked})
        assert part.status_code == 206
        assert part.content == whole[start:stop]
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(whole)}"
    beyond = client.get(address, headers={"range": f"bytes={len(whole)}-"})
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(whole)}"
    for ignored in ("bytes=5-2", "lines=1-2", "bytes=0-1,5-6", "bytes=-"):
        assert client.get(address, headers={"range": ignored}).status_code == 200
    changed = client.get(address, headers={"range": "bytes=0-1", "if-range": '"other"'})
    assert changed.status_code == 200


def test_pictures_are_no_clips_and_clips_no_pictures(client: TestClient) -> None:
    for address in (
        f"/api/items/{number(client, 'a horse')}/clip",
        f"/api/items/{clip_number(client)}/picture",
    ):
        answer = client.get(address)
        assert answer.status_code == 404
        assert "not a" in answer.json()["error"]


@pytest.mark.parametrize(
    "address",
    ["items/5%09/picture", "items/+5", "items/5_0", "items/5.0", "items/٥", "items/ 5/thumbnail",
     "search?q=dog&limit=4%20", "search?q=dog&offset=%2B1", "search?q=dog&spans=1"],
)  # fmt: skip
def test_numbers_are_digits_and_flags_true_or_false(client: TestClient, address: str) -> None:
    answer = client.get(f"/api/{address}")
    assert answer.status_code == 422
    assert "is no whole number" in answer.text or "is neither true nor false" in answer.text


def test_the_document_says_what_comes_back(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/api/search", "/api/pictures", "/api/library", "/api/languages", "/api/items/{item}",
        "/api/items/{item}/thumbnail", "/api/items/{item}/picture", "/api/items/{item}/clip",
        "/api/items/{item}/why", "/api/items/{item}/answers",
    }  # fmt: skip
    assert document["components"]["schemas"]["Problem"]["required"] == ["error"]
    refused = document["paths"]["/api/search"]["get"]["responses"]["422"]
    assert refused["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")
