"""Responses to valid and invalid requests match the OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from polyglance.search.library import Library
from polyglance.serve.app import create_app

PATHS = (
    "/api/search", "/api/pictures", "/api/library", "/api/languages", "/api/items/{item}",
    "/api/items/{item}/thumbnail", "/api/items/{item}/picture", "/api/items/{item}/clip",
    "/api/items/{item}/why", "/api/items/{item}/answers",
)  # fmt: skip


@pytest.fixture(scope="module")
def document(library: Library, models: dict[str, Any]) -> Any:
    return schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(library, **models), headers={"host": "localhost"}
    )


# Paths without parameters have no invalid requests.
CASES = [(path, GenerationMode.POSITIVE) for path in PATHS] + [
    (path, GenerationMode.NEGATIVE) for path in PATHS if "search" in path or "{" in path
]


@pytest.mark.parametrize(("path", "mode"), CASES)
def test_responses_match_the_document(document: Any, path: str, mode: GenerationMode) -> None:
    [operation] = document[path].values()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
    def check(case: schemathesis.Case) -> None:
        # The schema cannot say that words or a picture are required, nor that a file is a picture.
        case.call_and_validate(
            headers={"host": "localhost"}, excluded_checks=[positive_data_acceptance]
        )

    check()
