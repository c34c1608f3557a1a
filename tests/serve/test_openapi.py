"""Responses to valid and invalid requests match the OpenAPI document, and clients use it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import openapi_python_client as generator
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from openapi_python_client.config import Config, ConfigFile, MetaType
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from polyglance.search.library import Library
from polyglance.serve.app import create_app
from serve.conftest import running_server

TOKEN = "a-token-that-is-long-enough-for-this"
LOCAL = ("127.0.0.1", 50000)
PATHS = (
    "/api/search", "/api/pictures", "/api/library", "/api/languages", "/api/items/{item}",
    "/api/items/{item}/thumbnail", "/api/items/{item}/picture", "/api/items/{item}/clip",
    "/api/items/{item}/why", "/api/items/{item}/answers", "/api/embed", "/api/timeline",
    "/api/items", "/api/folders", "/api/facets", "/api/items/{item}/details",
    "/api/items/{item}/similar", "/api/items/{item}/neighbors", "/api/items/{item}/file",
    "/api/items/{item}/reveal", "/api/items/{item}/stack",
)  # fmt: skip
MANAGED = (
    "folders", "directories", "watching", "scan", "scan/events", "unreadable",
)  # fmt: skip


class OnThisMachine:
    """An application whose clients are on the same machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "client": LOCAL}, receive, send)


@pytest.fixture(scope="module")
def document(library: Library, models: dict[str, Any]) -> Any:
    return schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(library, **models), headers={"host": "localhost"}
    )


@pytest.fixture(scope="module")
def local_document(library: Library) -> Any:
    return schemathesis.openapi.from_asgi(
        "/openapi.json", OnThisMachine(create_app(library)), headers={"host": "localhost"}
    )


def test_all_paths_are_tested(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {*PATHS, *(f"/api/manage/{name}" for name in MANAGED)}


# Paths without parameters have no invalid requests.
CASES = [(path, GenerationMode.POSITIVE) for path in PATHS] + [
    (path, GenerationMode.NEGATIVE)
    for path in PATHS
    if path not in ("/api/library", "/api/languages", "/api/pictures")
]


@pytest.mark.parametrize(("path", "mode"), CASES)
def test_responses_match_the_document(document: Any, path: str, mode: GenerationMode) -> None:
    [operation] = document[path].values()
    check_operation(operation, mode, num=8 if path in ("/api/search", "/api/embed") else 4)


@pytest.mark.parametrize("path", MANAGED)
def test_responses_to_other_machines_match_the_document(document: Any, path: str) -> None:
    for operation in document[f"/api/manage/{path}"].values():
        check_operation(operation, GenerationMode.POSITIVE, num=2)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("path", ["directories", "unreadable"])
def test_responses_on_the_machine_match_the_document(
    local_document: Any, path: str, mode: GenerationMode
) -> None:
    """Nothing is added or watched here: a made-up path may be one that exists."""
    check_operation(local_document[f"/api/manage/{path}"]["GET"], mode, num=4)


def check_operation(operation: Any, mode: GenerationMode, num: int) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=num, suppress_health_check=list(HealthCheck), deadline=None)
    def check(case: schemathesis.Case) -> None:
        # The schema cannot say that words or a picture are required, nor that a file is a picture.
        case.call_and_validate(
            headers={"host": "localhost"}, excluded_checks=[positive_data_acceptance]
        )

    check()


@pytest.fixture(scope="module")
def protected(library: Library) -> FastAPI:
    """An application that needs a token."""
    return create_app(library, token=TOKEN)


def test_operations_have_names_and_a_security_scheme(
    protected: FastAPI, client: TestClient
) -> None:
    document = protected.openapi()
    operations = [one for path in document["paths"].values() for one in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert {"search", "upload_picture", "embed", "list_items", "get_thumbnail"} <= set(names)
    assert all(name.replace("_", "a").isalpha() for name in names)
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["security"] == [{"token": []}, {"cookie": []}]
    assert {} in client.get("/openapi.json").json()["security"]
    taken = document["components"]["schemas"]["Item"]["properties"]["taken"]
    assert (taken["type"], taken["format"]) == ("string", "date-time")


@pytest.fixture(scope="module")
def generated(protected: FastAPI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package that openapi-python-client generates from the document."""
    folder = tmp_path_factory.mktemp("generated")
    source = folder / "openapi.json"
    source.write_text(json.dumps(protected.openapi()), encoding="utf-8")
    config = Config.from_sources(
        ConfigFile(
            post_hooks=[],
            content_type_overrides={"image/webp": "application/octet-stream"},
        ),
        MetaType.NONE,
        document_source=source,
        file_encoding="utf-8",
        overwrite=True,
        output_path=folder / "polyglance_client",
    )
    problems = [problem.header for problem in generator.generate(config=config)]
    assert not [header for header in problems if header.startswith("ERROR")]
    sys.path.insert(0, str(folder))
    yield importlib.import_module("polyglance_client")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith("polyglance_client")]:
        del sys.modules[name]


def test_a_generated_client_works(
    generated: ModuleType, protected: FastAPI, library: Library, photos: Path
) -> None:
    def module(name: str) -> Any:
        return importlib.import_module(f"polyglance_client.{name}")

    models, picture = module("models"), next(photos.rglob("horse.webp"))
    with running_server(protected) as url:
        client = generated.AuthenticatedClient(base_url=url, token=TOKEN, timeout=30)
        with client, picture.open("rb") as file:
            upload = module("api.search.upload_picture").sync
            uploaded = upload(client=client, body=module("types").File(payload=file))
            search = module("api.search.search").sync
            found = search(client=client, like=[uploaded.picture], limit=3)
            assert found.hits[0].name == "horse.webp"
            assert found.hits[0].taken.utcoffset() is not None
            by_words = search(client=client, q="ein Hund", not_=["Gras"])
            assert by_words.hits
            embed = module("api.search.embed").sync
            body = models.EmbedRequest(texts=["a dog", "the sea"])
            vectors = np.array(embed(client=client, body=body).texts)
            assert vectors.shape == (2, library.model_info.width)
            page = module("api.browse.list_items").sync(client=client, limit=2)
            assert [item.rank for item in page.items] == [0, 1]
            thumbnail = module("api.items.get_thumbnail").sync(page.items[0].id, client=client)
            assert thumbnail.payload.read(4) == b"RIFF"
            problem = module("api.items.get_item").sync(10**9, client=client)
            assert "no such picture" in problem.error
        stranger = generated.Client(base_url=url, raise_on_unexpected_status=True)
        with stranger, pytest.raises(module("errors").UnexpectedStatus, match="401"):
            search(client=stranger, q="a dog")
