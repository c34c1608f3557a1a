"""Explanations of hits and questions about them, with tiny models."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from helpers.tiny_cross_encoders import ANSWERS, save_vqa_model, write_parts
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.explain import MAX_WORDS, STEPS
from polyglance.vision.pictures import read_picture

QUERY = "a horse on the meadow"


def first_hit(client: TestClient, **params: object) -> dict[str, Any]:
    response = client.get("/api/search", params={"q": "a horse", "limit": 1, **params})
    hit: dict[str, Any] = response.json()["hits"][0]
    return hit


def test_attributions_are_those_of_the_explainer(
    explaining_client: TestClient, models: dict[str, Any], photos: Path
) -> None:
    response = explaining_client.get(
        f"/api/items/{first_hit(explaining_client)['id']}/why", params={"q": QUERY}
    )
    assert response.headers["cache-control"] == "no-store"
    words = response.json()["words"]
    assert [one["word"] for one in words] == QUERY.split()
    picture = read_picture(photos / "holiday/animals/horse.webp")
    expected = models["explainer"].explain(picture, QUERY, steps=STEPS)
    for one, cells in zip(words, expected.heatmaps, strict=True):
        most = max(cells.max(), 1e-12)  # a word may have no attribution
        np.testing.assert_allclose(one["cells"], cells / most, atol=2e-3)
    assert np.max([one["cells"] for one in words]) == 1


def test_answers_are_those_of_the_answerer(
    explaining_client: TestClient, models: dict[str, Any], photos: Path
) -> None:
    address = f"/api/items/{first_hit(explaining_client)['id']}/answers"
    answers = explaining_client.get(address, params={"q": "what is it"}).json()["answers"]
    picture = read_picture(photos / "holiday/animals/horse.webp")
    expected = models["answerer"].ask(picture, "what is it")
    assert [one["text"] for one in answers] == [one.text for one in expected]
    assert answers[0]["probability"] == pytest.approx(expected[0].probability, abs=1e-3)
    german = explaining_client.get(address, params={"q": "what is it", "language": "de"}).json()[
        "answers"
    ]
    assert {one["text"] for one in german} == set(ANSWERS["de"])


def test_clips_use_the_middle_frame_of_their_segment(explaining_client: TestClient) -> None:
    explanations = []
    for query in ("a beach", "a rocket"):
        address = f"/api/items/{first_hit(explaining_client, q=query, kind='clip')['id']}"
        assert explaining_client.get(f"{address}/answers", params={"q": "what"}).status_code == 200
        explanations.append(explaining_client.get(f"{address}/why", params={"q": QUERY}).json())
    assert explanations[0] != explanations[1]


def test_library_info_lists_the_models(explaining_client: TestClient, client: TestClient) -> None:
    info = explaining_client.get("/api/library").json()
    assert (info["explains"], sorted(info["answers"])) == (True, ["de", "en"])
    plain = client.get("/api/library").json()
    assert (plain["explains"], plain["answers"]) == (False, [])
    for endpoint in ("why", "answers"):
        response = client.get(
            f"/api/items/{first_hit(client)['id']}/{endpoint}", params={"q": "dog"}
        )
        assert response.status_code == 404
        assert "has no model" in response.json()["error"]


@pytest.mark.parametrize("endpoint", ["why", "answers"])
@pytest.mark.parametrize(
    "params",
    [{}, {"q": " "}, {"q": "x" * 301}, {"q": "a\x00b"}, {"q": "…"}, {"q": "dog", "language": "?"},
     {"q": "dog", "more": "x"}],
)  # fmt: skip
def test_invalid_requests_get_422(
    explaining_client: TestClient, endpoint: str, params: dict[str, str]
) -> None:
    response = explaining_client.get(
        f"/api/items/{first_hit(explaining_client)['id']}/{endpoint}", params=params
    )
    if (endpoint, params) == ("answers", {"q": "…"}):  # the API answers a question without words
        assert response.status_code == 200
        return
    assert response.status_code == 422
    assert response.json()["error"].endswith(".")


def test_unknown_items_and_languages_are_refused(explaining_client: TestClient) -> None:
    for endpoint in ("why", "answers"):
        assert (
            explaining_client.get(f"/api/items/99999/{endpoint}", params={"q": "a"}).status_code
            == 404
        )
    params = {"q": "was", "language": "fr"}
    response = explaining_client.get(
        f"/api/items/{first_hit(explaining_client)['id']}/answers", params=params
    )
    assert (response.status_code, response.json()["error"]) == (
        422, "language: the model answers in en, de.",
    )  # fmt: skip


def test_long_queries_are_explained_in_part(explaining_client: TestClient) -> None:
    address = f"/api/items/{first_hit(explaining_client)['id']}/why"
    words = explaining_client.get(address, params={"q": "dogs at a door " * 10}).json()["words"]
    assert 0 < len(words) <= MAX_WORDS


def test_one_question_runs_at_a_time_and_the_queue_is_bounded(library: Library) -> None:
    running, max_running = 0, 0
    lock, release = threading.Lock(), threading.Event()

    class Blocked:
        languages = ("en",)

        def ask(self, *args: object, **options: object) -> list[Any]:
            nonlocal running, max_running
            with lock:
                running += 1
                max_running = max(max_running, running)
            release.wait()
            with lock:
                running -= 1
            return []

    statuses = []
    with TestClient(create_app(library, answerer=Blocked()), base_url="http://localhost") as client:

        def ask() -> None:
            status = client.get("/api/items/1/answers", params={"q": "a"}).status_code
            with lock:
                statuses.append(status)
                if len(statuses) == 30 - 17:  # one runs, sixteen wait, the others are refused
                    release.set()

        threads = [threading.Thread(target=ask) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max_running == 1
    assert set(statuses[:13]) == {503}
    assert set(statuses) == {200, 503}


def test_vqa_model_as_cross_encoder_is_refused(library: Library, tmp_path: Path) -> None:
    answerer = save_vqa_model(tmp_path / "vqa", write_parts(tmp_path, ["a horse", "a dog"]))
    command = ["serve", "--library", str(library.path), "--cross-encoder", str(answerer)]
    with pytest.raises(PolyglanceError, match="this as --answerer"):
        CliRunner().invoke(app, command, catch_exceptions=False)
