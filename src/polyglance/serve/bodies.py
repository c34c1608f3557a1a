"""JSON bodies of requests, received within the limits of uploads before they are parsed."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from polyglance.serve.errors import HTTPProblem, first_error
from polyglance.serve.uploads import UploadReceiver

M = TypeVar("M", bound=BaseModel)


BODY_SCHEMAS: dict[str, dict[str, Any]] = {}
"""The JSON schemas of the bodies that `read_json` parses, for the OpenAPI document."""


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI entry of a body in JSON."""
    BODY_SCHEMAS[model.__name__] = model.model_json_schema()
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


async def read_json(request: Request, receiver: UploadReceiver, model: type[M]) -> M:
    """Receive and validate a body.

    Args:
        request: The request; its body must say that it is JSON, which other sites cannot send.
        receiver: Limits its size and how long it may take.
        model: What it must be.

    Returns:
        The body; a problem with status 408, 413, 415 or 422 says why there is none.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPProblem(415, "The body must be JSON, with the type application/json.")
    async with receiver.body(request) as data:
        try:
            return model.model_validate_json(bytes(data))
        except ValidationError as error:
            raise HTTPProblem(422, first_error(error.errors(), 0)) from None
        except (ValueError, RecursionError):
            raise HTTPProblem(422, "The body is not JSON.") from None
