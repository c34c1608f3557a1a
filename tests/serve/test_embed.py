"""Vectors of texts and pictures over HTTP, and the page that documents the API."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser
from starlette.testclient import TestClient

from polyglance.search.library import Library
from polyglance.serve.app import create_app

RAW = {"accept": "application/octet-stream"}


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_vectors_are_those_of_the_library(
    client: TestClient, library: Library, photos: Path
) -> None:
    horse, width = next(photos.rglob("horse.webp")), library.model_info.width
    body = {"texts": ["a horse", "ein Pferd"], "pictures": [encoded(horse)]}
    response = client.post("/api/embed", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["model"], answer["width"]) == (library.model_info.model, width)
    texts, pictures = np.array(answer["texts"]), np.array(answer["pictures"])
    np.testing.assert_allclose(texts, library.text_vectors(["a horse", "ein Pferd"]), atol=1e-3)
    np.testing.assert_allclose(pictures[0], library.vector(horse), atol=1e-2)
    np.testing.assert_allclose(np.linalg.norm([*texts, *pictures], axis=1), 1, atol=1e-3)
    assert response.headers["cache-control"] == "no-store"
    raw = client.post("/api/embed", json=body, headers=RAW)
    assert raw.headers["content-type"] == "application/octet-stream"
    rows = np.frombuffer(raw.content, "<f4").reshape(-1, width)
    np.testing.assert_allclose(rows, [*texts, *pictures], atol=1e-6)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 422, "is empty"),
        ({"texts": ["a"] * 65}, 422, "texts: list should have at most 64"),
        ({"texts": ["a\0b"]}, 422, "control characters"),
        ({"texts": ["x" * 1001]}, 422, "at most 1000"),
        ({"pictures": ["AAAA"] * 9}, 422, "at most 8"),
        ({"pictures": ["not base64!"]}, 422, "is not base64"),
        ({"pictures": ["AAAA"]}, 415, "The file"),
        ({"texts": ["a"], "more": 1}, 422, "more"),
    ],
)
def test_what_cannot_be_encoded_is_refused(
    client: TestClient, body: dict[str, object], status: int, message: str
) -> None:
    response = client.post("/api/embed", json=body)
    assert response.status_code == status, response.text
    assert message in response.json()["error"]


def test_embedding_needs_the_token(library: Library) -> None:
    app = create_app(library, token="a-token-that-is-long-enough-for-this")
    stranger = TestClient(app, base_url="http://localhost")
    for method, path in (("POST", "/api/embed"), ("GET", "/docs"), ("GET", "/openapi.json")):
        assert stranger.request(method, path, json={"texts": ["a"]}).status_code == 401
    assert stranger.get("/docs/swagger-ui-bundle.js").status_code == 401


def test_the_documentation_works_without_the_internet(browser: Browser, base_url: str) -> None:
    context = browser.new_context(base_url=base_url)
    page, errors, hosts = context.new_page(), list[str](), set[str]()
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: hosts.add(request.url.partition("://")[2].split("/")[0]))
    response = page.goto("/docs")
    assert response is not None
    assert "unsafe" not in response.headers["content-security-policy"]
    page.locator("#operations-search-search").wait_for()
    page.locator("#operations-browse-list_items").click()
    page.locator("#operations-browse-list_items .opblock-description").wait_for()
    assert hosts == {base_url.partition("://")[2]}
    assert errors == []
    context.close()
