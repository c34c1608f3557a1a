"""Vectors of texts and pictures, by the library's model."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.store import LibraryUnavailableError
from polyglance.serve.bodies import json_body, read_json
from polyglance.serve.errors import HTTPProblem, error_responses
from polyglance.serve.item_json import binary
from polyglance.serve.limits import CLIENT
from polyglance.serve.schemas import Language, QueryText
from polyglance.serve.service import Service, get_service
from polyglance.vision.uploads import MAX_BYTES, UploadError, read_upload

MAX_TEXTS = 64
MAX_PICTURES = 8
RAW = "application/octet-stream"

router = APIRouter(prefix="/api", tags=["search"])


class EmbedRequest(BaseModel):
    """Texts and pictures to encode."""

    model_config = ConfigDict(extra="forbid")

    texts: list[QueryText] = Field([], max_length=MAX_TEXTS, description="Texts, in any language.")
    pictures: list[Annotated[str, Field(min_length=1, max_length=2 * MAX_BYTES)]] = Field(
        [], max_length=MAX_PICTURES, description="JPEG, PNG, WebP or GIF files in base64."
    )
    language: Language | None = Field(
        None, description="Language of the texts, for models that need it."
    )


class Embeddings(BaseModel):
    """Unit vectors; the cosine of two is their scalar product."""

    model: str
    width: int = Field(description="Numbers of a vector.")
    texts: list[list[float]]
    pictures: list[list[float]]


@router.post(
    "/embed",
    response_model=Embeddings,
    responses={
        200: {
            "description": "The vectors: texts first, then pictures. With `Accept:"
            f" {RAW}`, rows of little-endian float32 numbers instead of JSON.",
            **binary(RAW),
        },
        **error_responses(408, 413, 415, 503),
    },
    openapi_extra={"requestBody": json_body(EmbedRequest)},
)
async def embed(request: Request, response: Response) -> Any:
    """Return the vectors of texts and pictures, which nobody else gets to see."""
    service = get_service(request)
    body = await read_json(request, service.uploads, EmbedRequest)
    if not body.texts and not body.pictures:
        raise HTTPProblem(422, "The request is empty: give texts, pictures or both.")
    pictures = []
    for encoded in body.pictures:
        pictures.append(await service.upload_limiter.run(_decode, service, encoded, CLIENT.get()))
    vectors = await service.search_limiter.run(_encode, service, body, pictures)
    num_texts, manifest = len(body.texts), service.catalog.manifest
    response.headers["cache-control"] = "no-store"
    if RAW in request.headers.get("accept", ""):
        raw = np.ascontiguousarray(vectors, "<f4").tobytes()
        headers = {"cache-control": "no-store", "x-vector-width": str(manifest.width)}
        return Response(raw, media_type=RAW, headers=headers)
    listed = vectors.astype(float).round(7).tolist()
    return {
        "model": service.catalog.model_name,
        "width": manifest.width,
        "texts": listed[:num_texts],
        "pictures": listed[num_texts:],
    }


def _decode(service: Service, encoded: str, client: str) -> Any:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise HTTPProblem(422, "pictures: is not base64.") from None
    try:
        return read_upload(data, background=service.share.is_heavy(client))
    except UploadError as error:
        reason = str(error)
        raise HTTPProblem(415, f"{reason[:1].upper()}{reason[1:]}.") from error


def _encode(service: Service, body: EmbedRequest, pictures: list[Any]) -> Vectors:
    try:
        return service.catalog.embed(body.texts, pictures, body.language)
    except (DataError, LibraryUnavailableError):
        raise
    except PolyglanceError as error:
        raise HTTPProblem(422, "The library's model cannot read these texts.") from error
