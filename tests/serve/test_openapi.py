"""Whatever the OpenAPI document allows, and what it forbids, gets an answer that it promises."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from polyglance.search.library import Library
from polyglance.serve.app import create_app

ADDRESSES = (
    "/api/search", "/api/pictures", "/api/library", "/api/languages", "/api/items/{item}",
    "/api/items/{item}/thumbnail", "/api/items/{item}/picture", "/api/items/{item}/clip",
    "/api/items/{item}/why", "/api/items/{item}/answers",
)  # fmt: skip


@pytest.fixture(scope="module")
def document(library: Library, models: dict[str, Any]) -> Any:
    return schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(library, **models), headers={"host": "localhost"}
    )


# What has nothing in it that could be wrong cannot be asked wrongly.
CASES = [(address, GenerationMode.POSITIVE) for address in ADDRESSES] + [
    (address, GenerationMode.NEGATIVE)
    for address in ADDRESSES
    if "search" in address or "{" in address
]


@pytest.mark.parametrize(("address", "mode"), CASES)
def test_answers_are_as_promised(document: Any, address: str, mode: GenerationMode) -> None:
    [operation] = document[address].values()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
    def check(case: schemathesis.Case) -> None:
        # That words or a picture must be there, and that a file is a picture, no schema can say.
        case.call_and_validate(
            headers={"host": "localhost"}, excluded_checks=[positive_data_acceptance]
        )

    check()
