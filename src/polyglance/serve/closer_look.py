"""A closer look at one hit, where a model for it is given: why it was found, and questions.

Such models take seconds of all cores, so that few are asked at a time and little of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from fastapi import APIRouter, Query, Request, Response

from polyglance.errors import PolyglanceError
from polyglance.serve import schemas
from polyglance.serve.desk import Desk
from polyglance.serve.pictures import opened
from polyglance.serve.problems import Refused, promised
from polyglance.serve.shelf import Shelf

if TYPE_CHECKING:
    from PIL.Image import Image

    from polyglance.recipes.explaining import Looks
    from polyglance.recipes.questions.folder import Answer

MOST_WORDS = 12
"""Of a query, of which it is told where they look."""
STEPS = 6
"""Of integrated gradients. In a small model that reads a word off one of three regions, that one
has the most credit in 93 % of 300 pictures by 4, 6, 16 or 64 steps, and in 83 % by 2."""
DETAIL = 448
"""Pixels a side that are left of a large picture: twice what models look at."""
ANSWERS = 3

router = APIRouter(prefix="/api/items")


class Explains(Protocol):
    """What `polyglance.recipes.explaining.Explainer` does."""

    def explain(
        self,
        picture: Image,
        sentence: str,
        *,
        language: str | None = None,
        first: int | None = None,
        steps: int = STEPS,
    ) -> Looks:
        """Where the first words of a sentence look, in so many steps."""


class Answers(Protocol):
    """What `polyglance.recipes.questions.folder.Answerer` does."""

    @property
    def languages(self) -> Sequence[str]:
        """Those it answers in."""

    def ask(
        self, picture: Image, question: str, *, language: str | None = None, k: int = 3
    ) -> Sequence[Answer]:
        """The likeliest answers."""


class CloserLook:
    """The models that are given, and a desk for one at a time."""

    def __init__(self, shelf: Shelf, explainer: Explains | None, answerer: Answers | None) -> None:
        self._shelf, self._explainer, self._answerer = shelf, explainer, answerer
        self.desk = Desk(1, waiting=16)

    @property
    def explains(self) -> bool:
        """Whether it can be told why something was found."""
        return self._explainer is not None

    @property
    def languages(self) -> list[str]:
        """In which questions are answered; none where they are not."""
        return [] if self._answerer is None else list(self._answerer.languages)

    def why(self, number: int, asked: schemas.WhyQuery) -> list[dict[str, Any]]:
        """Words with what each cell of the picture is to them; 1 is where a word looks most."""
        if self._explainer is None:
            raise Refused(404, "This service has no model that tells why something was found.")
        picture = self._picture(number)
        try:
            looks = self._explainer.explain(
                picture, asked.q, language=asked.language, first=MOST_WORDS, steps=STEPS
            )
        except PolyglanceError as error:
            raise Refused(422, "q: the model knows no word of this, or not its language.") from (
                error
            )
        return [
            {"word": word, "cells": (cells / max(float(cells.max()), 1e-12)).round(3).tolist()}
            for word, cells in zip(looks.words, looks.cells, strict=True)
        ]

    def answers(self, number: int, asked: schemas.AnswersQuery) -> list[dict[str, Any]]:
        """The likeliest answers to a question."""
        if self._answerer is None:
            raise Refused(404, "This service has no model that answers questions.")
        picture = self._picture(number)
        try:
            found = self._answerer.ask(picture, asked.q, language=asked.language, k=ANSWERS)
        except PolyglanceError as error:
            known = ", ".join(self.languages)
            raise Refused(422, f"language: the model answers in {known}.") from error
        return [
            {
                "text": answer.text,
                "language": answer.language,
                "probability": round(answer.probability, 4),
            }
            for answer in found
        ]

    def _picture(self, number: int) -> Image:
        return opened(self._shelf, self._shelf.found(number), DETAIL)


def _closer(request: Request) -> CloserLook:
    closer: CloserLook = request.app.state.service.closer
    return closer


@router.get("/{item}/why", response_model=schemas.Why, responses=promised(404, 503))
async def why(
    request: Request,
    response: Response,
    item: schemas.ItemId,
    asked: Annotated[schemas.WhyQuery, Query()],
) -> dict[str, Any]:
    """Where the words of a query look in a picture, or in the middle of a clip's span."""
    closer = _closer(request)
    response.headers["cache-control"] = "no-store"
    return {"words": await closer.desk.run(closer.why, item, asked)}


@router.get("/{item}/answers", response_model=schemas.Answers, responses=promised(404, 503))
async def answers(
    request: Request,
    response: Response,
    item: schemas.ItemId,
    asked: Annotated[schemas.AnswersQuery, Query()],
) -> dict[str, Any]:
    """Ask a question about a picture, or about the middle of a clip's span."""
    closer = _closer(request)
    response.headers["cache-control"] = "no-store"
    return {"answers": await closer.desk.run(closer.answers, item, asked)}
