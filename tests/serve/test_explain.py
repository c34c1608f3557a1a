"""Why something was found, and questions about it, where models are given."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.explain import MOST_WORDS, STEPS
from polyglance.vision.pictures import read_picture
from tiny_readers import ANSWERS, make_parts, save_answerer

QUERY = "a horse on the meadow"


def hit(client: TestClient, **asked: object) -> dict[str, Any]:
    answer = client.get("/api/search", params={"q": "a horse", "limit": 1, **asked})
    found: dict[str, Any] = answer.json()["hits"][0]
    return found


def test_words_look_as_the_explainer_says(
    knowing: TestClient, models: dict[str, Any], photos: Path
) -> None:
    answer = knowing.get(f"/api/items/{hit(knowing)['id']}/why", params={"q": QUERY})
    assert answer.headers["cache-control"] == "no-store"
    words = answer.json()["words"]
    assert [one["word"] for one in words] == QUERY.split()
    picture = read_picture(photos / "holiday/animals/horse.webp")
    expected = models["explainer"].explain(picture, QUERY, steps=STEPS)
    for one, cells in zip(words, expected.cells, strict=True):
        most = max(cells.max(), 1e-12)  # a word may look nowhere
        np.testing.assert_allclose(one["cells"], cells / most, atol=2e-3)
    assert np.max([one["cells"] for one in words]) == 1


def test_questions_are_answered_as_the_answerer_does(
    knowing: TestClient, models: dict[str, Any], photos: Path
) -> None:
    address = f"/api/items/{hit(knowing)['id']}/answers"
    found = knowing.get(address, params={"q": "what is it"}).json()["answers"]
    picture = read_picture(photos / "holiday/animals/horse.webp")
    expected = models["answerer"].ask(picture, "what is it")
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert found[0]["probability"] == pytest.approx(expected[0].probability, abs=1e-3)
    german = knowing.get(address, params={"q": "what is it", "language": "de"}).json()["answers"]
    assert {one["text"] for one in german} == set(ANSWERS["de"])


def test_of_a_clip_the_middle_of_its_span_is_looked_at(knowing: TestClient) -> None:
    looks = []
    for query in ("a beach", "a rocket"):
        address = f"/api/items/{hit(knowing, q=query, kind='clip')['id']}"
        assert knowing.get(f"{address}/answers", params={"q": "what"}).status_code == 200
        looks.append(knowing.get(f"{address}/why", params={"q": QUERY}).json())
    assert looks[0] != looks[1]


def test_the_library_says_what_it_can_be_asked(knowing: TestClient, client: TestClient) -> None:
    told = knowing.get("/api/library").json()
    assert (told["explains"], sorted(told["answers"])) == (True, ["de", "en"])
    plain = client.get("/api/library").json()
    assert (plain["explains"], plain["answers"]) == (False, [])
    for what in ("why", "answers"):
        answer = client.get(f"/api/items/{hit(client)['id']}/{what}", params={"q": "dog"})
        assert answer.status_code == 404
        assert "has no model" in answer.json()["error"]


@pytest.mark.parametrize("what", ["why", "answers"])
@pytest.mark.parametrize(
    "asked",
    [{}, {"q": " "}, {"q": "x" * 301}, {"q": "a\x00b"}, {"q": "…"}, {"q": "dog", "language": "?"},
     {"q": "dog", "more": "x"}],
)  # fmt: skip
def test_what_cannot_be_asked(knowing: TestClient, what: str, asked: dict[str, str]) -> None:
    answer = knowing.get(f"/api/items/{hit(knowing)['id']}/{what}", params=asked)
    if (what, asked) == ("answers", {"q": "…"}):  # a question of no words has answers too
        assert answer.status_code == 200
        return
    assert answer.status_code == 422
    assert answer.json()["error"].endswith(".")


def test_no_such_item_or_language(knowing: TestClient) -> None:
    for what in ("why", "answers"):
        assert knowing.get(f"/api/items/99999/{what}", params={"q": "a"}).status_code == 404
    asked = {"q": "was", "language": "fr"}
    answer = knowing.get(f"/api/items/{hit(knowing)['id']}/answers", params=asked)
    assert (answer.status_code, answer.json()["error"]) == (
        422, "language: the model answers in en, de.",
    )  # fmt: skip


def test_long_queries_are_told_in_part(knowing: TestClient) -> None:
    address = f"/api/items/{hit(knowing)['id']}/why"
    words = knowing.get(address, params={"q": "dogs at a door " * 10}).json()["words"]
    assert 0 < len(words) <= MOST_WORDS


def test_one_is_asked_at_a_time(library: Library) -> None:
    now, most = 0, 0
    lock = threading.Lock()

    class Slow:
        languages = ("en",)

        def ask(self, *given: object, **how: object) -> list[Any]:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.05)
            with lock:
                now -= 1
            return []

    statuses = []
    with TestClient(create_app(library, answerer=Slow()), base_url="http://localhost") as client:

        def ask() -> None:
            statuses.append(client.get("/api/items/1/answers", params={"q": "a"}).status_code)

        threads = [threading.Thread(target=ask) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 1
    assert set(statuses) == {200, 503}  # the queue has an end
    assert statuses.count(200) >= 16


def test_a_model_of_another_kind_is_refused(library: Library, tmp_path: Path) -> None:
    answerer = save_answerer(tmp_path / "vqa", make_parts(tmp_path, ["a horse", "a dog"]))
    command = ["serve", "--library", str(library.path), "--explainer", str(answerer)]
    with pytest.raises(PolyglanceError, match="this as --answerer"):
        CliRunner().invoke(app, command, catch_exceptions=False)
