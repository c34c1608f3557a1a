"""Error responses: a status and one sentence that is safe to show to anyone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from polyglance.search.store import LibraryDamagedError, LibraryUnavailableError
from polyglance.serve.schemas import Problem

log = logging.getLogger(__name__)

_DETAILS = {
    404: "There is nothing at this address.",
    405: "This address does not take such a request.",
}


class HTTPProblem(Exception):  # noqa: N818 (a problem in the sense of RFC 9457)
    """A request that is refused, and why. The detail must hold no secrets."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of error statuses."""
    descriptions = {
        403: "Not from the machine itself, or the owner has not confirmed the folder.",
        404: "Not found, or no longer there.",
        408: "The body took too long to arrive.",
        413: "The body is too large.",
        415: "The body is not of a type that can be read.",
        416: "The range is beyond the end of the file.",
        503: "Overloaded, or the library is unreachable: try again after `Retry-After` seconds.",
    }
    return {status: {"model": Problem, "description": descriptions[status]} for status in statuses}


def problem_response(problem: HTTPProblem) -> JSONResponse:
    """Return the JSON response for a problem."""
    return JSONResponse(
        {"error": problem.detail}, problem.status, {"cache-control": "no-store"} | problem.headers
    )


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of an application with one sentence in JSON."""

    @app.exception_handler(HTTPProblem)
    async def handle_problem(_: Request, error: HTTPProblem) -> JSONResponse:
        return problem_response(error)

    @app.exception_handler(LibraryUnavailableError)
    async def handle_unreachable(_: Request, error: LibraryUnavailableError) -> JSONResponse:
        # The error's own message names the database, which clients must not learn.
        detail = "The library does not answer at the moment: try again soon."
        return problem_response(HTTPProblem(503, detail, {"retry-after": "5"}))

    @app.exception_handler(LibraryDamagedError)
    async def handle_damage(_: Request, error: LibraryDamagedError) -> JSONResponse:
        # The error's own message names the file, for whoever runs the server.
        log.error("%s", error)
        detail = "The library is damaged: its owner can mend it with `polyglance library repair`."
        return problem_response(HTTPProblem(503, detail))

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(HTTPProblem(422, first_error(error.errors())))

    @app.exception_handler(HTTPException)
    async def handle_http_exception(_: Request, error: HTTPException) -> JSONResponse:
        detail = _DETAILS.get(error.status_code, "The request cannot be answered.")
        return problem_response(HTTPProblem(error.status_code, detail, error.headers))


def first_error(errors: Sequence[Any], skipped: int = 1) -> str:
    """Return the first validation error as a sentence, without the value that was sent.

    ``skipped`` parts of its place say only where in the request it was.
    """
    error = errors[0]
    field = next((part for part in error["loc"][skipped:] if isinstance(part, str)), "")
    # Pydantic puts this prefix before the message of a ValueError.
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{field}: {message[:1].lower()}{message[1:]}." if field else f"{message}."
