"""Requests that are not answered: a status and one sentence that anybody may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from polyglance.search.store import Unreachable
from polyglance.serve.schemas import Problem

_SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take such a request.",
}


class Refused(Exception):  # noqa: N818 (it reads as what it says)
    """A request that is not answered, and why. The sentence holds nothing that is secret."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def promised(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of refusals."""
    said = {
        404: "There is no such thing, or no longer.",
        408: "The body took too long to arrive.",
        413: "Too many bytes.",
        415: "Not a picture that can be read.",
        416: "The file is shorter.",
        503: "Too much to do, or the library is away: `Retry-After` says when to try again.",
    }
    return {one: {"model": Problem, "description": said[one]} for one in statuses}


def refusal(refused: Refused) -> JSONResponse:
    """The answer to a request that is not answered."""
    return JSONResponse(
        {"error": refused.sentence}, refused.status, {"cache-control": "no-store"} | refused.headers
    )


def answer_in_sentences(app: FastAPI) -> None:
    """Let every error of an application be one sentence in JSON."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return refusal(error)

    @app.exception_handler(Unreachable)
    async def away(_: Request, error: Unreachable) -> JSONResponse:
        # Its own sentence tells people at the terminal where the library is.
        sentence = "The library does not answer at the moment: try again soon."
        return refusal(Refused(503, sentence, {"retry-after": "5"}))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(Refused(422, _first(error.errors())))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> JSONResponse:
        sentence = _SENTENCES.get(error.status_code, "The request cannot be answered.")
        return refusal(Refused(error.status_code, sentence, error.headers))


def _first(errors: Sequence[Any]) -> str:
    """The first of what is wrong, without what was sent."""
    error = errors[0]
    where = next((part for part in error["loc"][1:] if isinstance(part, str)), "")
    # Python's own errors come behind a prefix.
    said = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{where}: {said[:1].lower()}{said[1:]}." if where else f"{said}."
