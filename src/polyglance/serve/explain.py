"""Explanations of a hit and questions about it, if the server was given models for them.

These models take seconds on all cores, so one request runs at a time and inputs are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from fastapi import APIRouter, Query, Request, Response

from polyglance.errors import PolyglanceError
from polyglance.serve import explain_schemas as schemas
from polyglance.serve.catalog import LibraryCatalog
from polyglance.serve.errors import HTTPProblem, error_responses
from polyglance.serve.limits import ConcurrencyLimiter
from polyglance.serve.schemas import ItemId
from polyglance.serve.thumbnails import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

    from polyglance.encoders.answers import Answer
    from polyglance.encoders.attribution import Attribution

MAX_WORDS = 12
"""Maximum number of query words to explain."""
STEPS = 6
"""Steps of integrated gradients. In a small model that predicts a word from one of three regions,
that region gets the most credit in 93 % of 300 pictures with 4, 6, 16 or 64 steps, and in 83 %
with 2."""
MIN_SIDE = 448
"""Large pictures are decoded at a lower resolution, but not below this: twice the models' input."""
NUM_ANSWERS = 3

router = APIRouter(prefix="/api/items", tags=["items"])


class SupportsExplain(Protocol):
    """The interface of `polyglance.cross_encoders.explain.Explainer`."""

    def explain(
        self,
        image: Image,
        sentence: str,
        *,
        language: str | None = None,
        max_words: int | None = None,
        steps: int = STEPS,
    ) -> Attribution:
        """Attribute the first words of a sentence to cells of the image."""


class SupportsAnswer(Protocol):
    """The interface of `polyglance.cross_encoders.vqa.Answerer`."""

    @property
    def languages(self) -> Sequence[str]:
        """Languages of the answers."""

    def ask(
        self, image: Image, question: str, *, language: str | None = None, k: int = 3
    ) -> Sequence[Answer]:
        """Return the ``k`` most probable answers."""


class HitModels:
    """The optional models that explain a hit and answer questions about it."""

    def __init__(
        self,
        catalog: LibraryCatalog,
        explainer: SupportsExplain | None,
        answerer: SupportsAnswer | None,
    ) -> None:
        self._catalog, self._explainer, self._answerer = catalog, explainer, answerer
        self.limiter = ConcurrencyLimiter(1, max_waiting=16)

    @property
    def explains(self) -> bool:
        """Whether there is a model that explains hits."""
        return self._explainer is not None

    @property
    def languages(self) -> list[str]:
        """Languages in which questions are answered; empty without a model."""
        return [] if self._answerer is None else list(self._answerer.languages)

    def explain(self, item: int, query: schemas.ExplainQuery) -> list[dict[str, Any]]:
        """Return each word with its attribution map (rows, columns), scaled to a maximum of 1."""
        if self._explainer is None:
            raise HTTPProblem(404, "This server has no model that explains hits.")
        picture = self._picture(item)
        try:
            result = self._explainer.explain(
                picture, query.q, language=query.language, max_words=MAX_WORDS, steps=STEPS
            )
        except PolyglanceError as error:
            raise HTTPProblem(
                422, "q: the model knows none of these words, or not the language."
            ) from error
        return [
            {"word": word, "cells": (cells / max(float(cells.max()), 1e-12)).round(3).tolist()}
            for word, cells in zip(result.words, result.heatmaps, strict=True)
        ]

    def answer(self, item: int, query: schemas.AnswersQuery) -> list[dict[str, Any]]:
        """Return the most probable answers to a question."""
        if self._answerer is None:
            raise HTTPProblem(404, "This server has no model that answers questions.")
        picture = self._picture(item)
        try:
            answers = self._answerer.ask(picture, query.q, language=query.language, k=NUM_ANSWERS)
        except PolyglanceError as error:
            languages = ", ".join(self.languages)
            raise HTTPProblem(422, f"language: the model answers in {languages}.") from error
        return [
            {
                "text": answer.text,
                "language": answer.language,
                "probability": round(answer.probability, 4),
            }
            for answer in answers
        ]

    def _picture(self, item: int) -> Image:
        return open_picture(self._catalog, self._catalog.get(item), MIN_SIDE)


def _hit_models(request: Request) -> HitModels:
    hit_models: HitModels = request.app.state.service.hit_models
    return hit_models


@router.get("/{item}/why", response_model=schemas.Explanation, responses=error_responses(404, 503))
async def explain(
    request: Request,
    response: Response,
    item: ItemId,
    query: Annotated[schemas.ExplainQuery, Query()],
) -> dict[str, Any]:
    """Explain a hit: which parts of the picture, or of a clip's middle frame, match each word."""
    hit_models = _hit_models(request)
    response.headers["cache-control"] = "no-store"
    return {"words": await hit_models.limiter.run(hit_models.explain, item, query)}


@router.get(
    "/{item}/answers", response_model=schemas.AnswersResponse, responses=error_responses(404, 503)
)
async def answers(
    request: Request,
    response: Response,
    item: ItemId,
    query: Annotated[schemas.AnswersQuery, Query()],
) -> dict[str, Any]:
    """Answer a question about a picture, or about the middle frame of a clip's segment."""
    hit_models = _hit_models(request)
    response.headers["cache-control"] = "no-store"
    return {"answers": await hit_models.limiter.run(hit_models.answer, item, query)}
