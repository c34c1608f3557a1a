"""The JSON API."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from types import SimpleNamespace

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
from polyglance.serve.catalog import OVERVIEW_COST, LibraryCatalog


def names(client: TestClient, **params: object) -> list[str]:
    response = client.get("/api/search", params=params)
    assert response.status_code == 200, response.text
    return [hit["name"].partition(".")[0] for hit in response.json()["hits"]]


def first_id(client: TestClient, text: str, **params: object) -> int:
    hits = client.get("/api/search", params={"q": text, "limit": 1, **params}).json()["hits"]
    return int(hits[0]["id"])


def clip_id(client: TestClient) -> int:
    return first_id(client, "a rocket", kind="clip")


def upload(client: TestClient, name: str) -> str:
    response = client.post(
        "/api/pictures",
        content=(FOLDER / f"{name}.webp").read_bytes(),
        headers={"content-type": "image/webp"},
    )
    assert response.status_code == 200, response.text
    return str(response.json()["picture"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("zwei Giraffen zwischen Bäumen", "giraffes"),
        ("夜晚水边的高楼大厦", "city-night"),
        ("زرافتان بين الأشجار", "giraffes"),
        ("une pile de crêpes sur une assiette", "pancakes"),
    ],
)
def test_queries_in_any_language(client: TestClient, query: str, expected: str) -> None:
    assert expected in names(client, q=query, limit=2)


def test_hits_equal_those_of_the_library(client: TestClient, library: Library) -> None:
    response = client.get("/api/search", params={"q": "a dog", "limit": 10}).json()
    expected = library.search("a dog", k=10)
    assert [hit["name"] for hit in response["hits"]] == [hit.path.name for hit in expected]
    assert [hit["score"] for hit in response["hits"]] == pytest.approx(
        [hit.score for hit in expected], abs=1e-4
    )


def test_pages_join_into_the_full_list(client: TestClient) -> None:
    whole = names(client, q="a cat", limit=20)
    pages = [names(client, q="a cat", limit=8, offset=start) for start in (0, 8, 16)]
    assert [name for page in pages for name in page][:20] == whole
    last = client.get("/api/search", params={"q": "a cat", "limit": 20, "offset": 20}).json()
    assert last["more"] is False
    assert len(last["hits"]) == 33 - 20


def test_searching_by_a_hit_finds_itself_first(client: TestClient) -> None:
    horse = first_id(client, "a horse")
    assert names(client, like=horse, limit=1) == ["horse"]


def test_searching_by_an_uploaded_picture(
    client: TestClient,
) -> None:
    token = upload(client, "penguin")
    assert names(client, like=token, limit=1) == ["penguin"]
    score = client.get("/api/search", params={"like": token}).json()["hits"][0]["score"]
    assert score == pytest.approx(1, abs=0.01)


def test_words_and_pictures_combine_as_in_the_library(client: TestClient, library: Library) -> None:
    city = Image.open(FOLDER / "city-sunset.webp").convert("RGB")
    hits = library.search("at night", picture=city, exclude="a lake", k=10)
    expected = [hit.path.stem for hit in hits]
    params = {"q": "at night", "like": upload(client, "city-sunset"), "not": "a lake"}
    assert names(client, **params, limit=10) == expected


def test_excluded_words_and_pictures(client: TestClient) -> None:
    with_dogs = names(client, q="a dog", limit=4)
    assert "dogs-at-door" in with_dogs
    dogs_by_name = {"golden-retriever": "a retriever", "german-shepherd": "a shepherd dog"}
    first, second = sorted(dogs_by_name, key=with_dogs.index)  # they are nearly as alike
    without = names(client, q="a dog", **{"not": dogs_by_name[first]}, limit=40, stack=False)
    assert without.index(second) < without.index(first)
    pixels = {"q": "a dog", "off": "names", "limit": 1}  # a file is called dogs-at-door
    best = first_id(client, "a dog", off="names")
    assert names(client, unlike=best, **pixels) != names(client, **pixels)
    ranked = names(client, **{"not": "a dog"}, limit=40, stack=False)  # nothing else is said
    dogs = {"dogs-at-door", "german-shepherd", "golden-retriever"}
    assert dogs.isdisjoint(ranked[:20])
    assert dogs <= set(ranked)


def test_filters(client: TestClient) -> None:
    assert set(names(client, q="a city", folder="holiday/animals")).isdisjoint({"city-night"})
    assert len(names(client, q="a city", folder="holiday", limit=100)) == 32
    assert names(client, q="a city", kind="clip") == ["journey"]
    assert names(client, q="a city", until="1999") == []
    assert len(names(client, q="a city", since="2000", limit=100)) == 33


def test_an_unreachable_library_is_reported_without_its_url(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise LibraryUnavailableError("postgresql://db.example/photos does not answer")

    monkeypatch.setattr(Library, "search", unreachable)
    response = client.get("/api/search", params={"q": "a horse"})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert "does not answer" in response.json()["error"]
    assert "example" not in response.text


def test_clips_are_found_by_segment(client: TestClient) -> None:
    for query, start in (("a beach", 0), ("an orchestra plays", 3), ("a rocket launch", 6)):
        response = client.get("/api/search", params={"q": query, "kind": "clip"}).json()
        [hit] = response["hits"]
        assert hit["span"][0] == pytest.approx(start, abs=0.5)
    params = {"q": "a rocket", "kind": "clip", "spans": True}
    assert len(client.get("/api/search", params=params).json()["hits"]) == 3


def test_library_info_lists_folders_without_paths(client: TestClient) -> None:
    info = client.get("/api/library").json()
    assert (info["pictures"], info["clips"]) == (32, 1)
    assert info["folders"] == [
        {"folder": "films", "files": 1},
        {"folder": "holiday", "files": 32},
        {"folder": "holiday/animals", "files": 18},
    ]


def test_thumbnails_of_a_named_library_are_cached_for_good(client: TestClient) -> None:
    library = client.get("/api/library").json()["library"]
    named = client.get("/api/items/1/thumbnail", params={"v": library})
    assert "immutable" in named.headers["cache-control"]
    for other in ({"v": "another"}, {}):
        answer = client.get("/api/items/1/thumbnail", params=other)
        assert answer.headers["cache-control"] == "private, no-cache"
        assert answer.content == named.content


def test_the_overview_is_cached_while_the_library_changes(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Counting takes a second, so it is not repeated for some.
    clock = iter([100.0, 101.0, 99.9 + OVERVIEW_COST, 100.0 + OVERVIEW_COST, 200.0])
    monkeypatch.setattr(
        "polyglance.serve.catalog.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    catalog = LibraryCatalog(library)
    first = catalog.overview()
    revisions = iter(range(100))
    monkeypatch.setattr(Library, "revision", property(lambda _: next(revisions)))
    assert catalog.overview() is first
    again = catalog.overview()
    assert again is not first
    assert again == first


def test_files_indexed_by_a_manifest_are_served_but_links_are_not(tmp_path: Path) -> None:
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
        client = TestClient(create_app(library), base_url="http://localhost")
        info = client.get("/api/items/1")
        assert (info.status_code, info.json()["folder"]) == (200, "")
        assert client.get("/api/items/1/picture").status_code == 403
        library.trust(tmp_path, remember=False)
        assert client.get("/api/items/1/picture").status_code == 200
        picture.rename(tmp_path / "elsewhere.webp")
        picture.symlink_to(tmp_path / "elsewhere.webp")
        assert client.get("/api/items/1/picture").status_code == 404


def test_interface_languages_have_a_direction(client: TestClient) -> None:
    directions = {one["code"]: one["direction"] for one in client.get("/api/languages").json()}
    assert set(directions) == {"en", "de", "fr", "cs", "pt", "zh", "ar"}
    assert [code for code, direction in directions.items() if direction == "rtl"] == ["ar"]


def test_item_info_equals_the_hit(client: TestClient) -> None:
    hit = client.get("/api/search", params={"q": "a horse", "limit": 1}).json()["hits"][0]
    for name in ("score", "probability", "why", "stack"):
        del hit[name]
    assert client.get(f"/api/items/{hit['id']}").json() == hit
    assert (hit["folder"], hit["name"]) == ("holiday/animals", "horse.webp")


def test_thumbnails_are_small_and_differ_between_segments(client: TestClient) -> None:
    horse = first_id(client, "a horse")
    for size in (256, 640):
        response = client.get(f"/api/items/{horse}/thumbnail", params={"size": size})
        assert response.headers["content-type"] == "image/webp"
        assert max(Image.open(io.BytesIO(response.content)).size) <= size
        again = client.get(response.url, headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    spans = {
        client.get(f"/api/items/{first_id(client, text, kind='clip')}/thumbnail").content
        for text in ("a beach", "a rocket")
    }
    assert len(spans) == 2


def test_pictures_are_sent_as_their_files(client: TestClient) -> None:
    response = client.get(f"/api/items/{first_id(client, 'a horse')}/picture")
    assert response.headers["content-type"] == "image/webp"
    assert response.content == (FOLDER / "horse.webp").read_bytes()
    again = client.get(response.url.path, headers={"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_clips_are_sent_in_ranges(client: TestClient, photos: Path) -> None:
    whole = (photos / "films" / "journey.webm").read_bytes()
    address = f"/api/items/{clip_id(client)}/clip"
    assert client.get(address).content == whole
    for range_header, start, stop in (
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, len(whole)),
        ("bytes=-50", len(whole) - 50, len(whole)),
        (f"bytes=10-{10 * len(whole)}", 10, len(whole)),
    ):
        part = client.get(address, headers={"range": range_header})
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


def test_pictures_and_clips_have_separate_endpoints(client: TestClient) -> None:
    for address in (
        f"/api/items/{first_id(client, 'a horse')}/clip",
        f"/api/items/{clip_id(client)}/picture",
    ):
        response = client.get(address)
        assert response.status_code == 404
        assert "not a" in response.json()["error"]


@pytest.mark.parametrize(
    "address",
    ["items/5%09/picture", "items/+5", "items/5_0", "items/5.0", "items/٥", "items/ 5/thumbnail",
     "search?q=dog&limit=4%20", "search?q=dog&offset=%2B1", "search?q=dog&spans=1"],
)  # fmt: skip
def test_integers_are_digits_and_flags_are_true_or_false(client: TestClient, address: str) -> None:
    response = client.get(f"/api/{address}")
    assert response.status_code == 422
    assert "is not a whole number" in response.text or "is neither true nor false" in response.text


def test_openapi_document(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["components"]["schemas"]["Problem"]["required"] == ["error"]
    error = document["paths"]["/api/search"]["get"]["responses"]["422"]
    assert error["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")


def test_hits_say_how_certain_they_are_and_why(client: TestClient) -> None:
    found = client.get("/api/search", params={"q": "a horse", "limit": 5}).json()
    [first, *_] = found["hits"]
    assert first["name"] == "horse.webp"
    assert "name" in [reason["signal"] for reason in first["why"]]
    plain = client.get("/api/search", params={"q": "a horse", "limit": 5, "off": "names"}).json()
    assert not any(one["signal"] == "name" for hit in plain["hits"] for one in hit["why"])
    if found["fold"] is not None:
        assert found["fits"] is (found["fold"] > 0)
        assert all(0 <= hit["probability"] <= 1 for hit in found["hits"])
    misspelt = client.get("/api/search", params={"q": "a hrose on a meadow", "limit": 1}).json()
    assert misspelt["corrected"] in (None, "a horse on a meadow")
    excluding = client.get("/api/search", params={"q": "animals without birds"}).json()
    assert excluding["understood"]["without"] == ["birds"]
    literal = client.get("/api/search", params={"q": "animals without birds", "literal": "true"})
    assert (literal.json()["understood"] or {}).get("without", []) == []
    dated = client.get("/api/search", params={"q": "since 1990", "min_score": "1"}).json()
    taken = [hit["taken"] for hit in dated["hits"]]
    assert len(taken) > 1
    assert taken == sorted(taken, reverse=True)
    assert {(hit["score"], hit["probability"]) for hit in dated["hits"]} == {(None, None)}
    certain = client.get("/api/search", params={"q": "a horse", "min_score": "1"}).json()
    assert certain["hits"] == []
    for bad in ("nan", "1_0", "2", "-1", "inf"):
        response = client.get("/api/search", params={"q": "a horse", "min_score": bad})
        assert response.status_code == 422


def test_pictures_have_weights(client: TestClient) -> None:
    horse, owl = (first_id(client, name) for name in ("a horse", "an owl"))
    pictures = {"like": [horse, owl], "limit": 1}
    assert names(client, **pictures, like_weight=["10", "1"]) == ["horse"]
    assert names(client, **pictures, like_weight=["1", "10"]) == ["owl"]
    wrong = client.get("/api/search", params={**pictures, "like_weight": ["1"]})
    assert wrong.status_code == 422


def test_hits_are_filtered_by_camera_and_place(client: TestClient) -> None:
    assert names(client, q="a horse", camera="none such") == []
    assert names(client, q="a horse", place="none such") == []


def test_stacks_hold_the_item_itself(client: TestClient) -> None:
    horse = first_id(client, "a horse")
    items = client.get(f"/api/items/{horse}/stack").json()["items"]
    assert items[0]["id"] == horse
    assert client.get("/api/items/999999/stack").status_code == 404
