"""One item: what is known of it, its thumbnail, its file, and items that look like it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from polyglance.search.query import MediaRef
from polyglance.serve import schemas
from polyglance.serve.catalog import SearchRequest
from polyglance.serve.errors import HTTPProblem, error_responses
from polyglance.serve.file_manager import reveal as reveal_file
from polyglance.serve.head import is_head
from polyglance.serve.item_json import binary, items_json
from polyglance.serve.service import get_service
from polyglance.serve.streaming import MEDIA_POLICY, stream
from polyglance.serve.thumbnails import IMAGE_TYPES, MAX_SIDE, VIDEO_TYPES, encode_webp, suffix

router = APIRouter(prefix="/api/items/{item}", tags=["items"])

_FILE_ERRORS = error_responses(403, 404, 416, 503)


@router.get("", response_model=schemas.Item, responses=error_responses(404, 503))
async def get_item(request: Request, item: schemas.ItemId) -> dict[str, Any]:
    """Describe a picture or clip."""
    catalog = get_service(request).catalog
    return await get_service(request).lookup_limiter.run(
        lambda: items_json(catalog, [catalog.get(item)])[0]
    )


@router.get("/details", response_model=schemas.ItemDetails, responses=error_responses(404, 503))
async def get_item_details(request: Request, item: schemas.ItemId) -> dict[str, Any]:
    """Return all that is known of a picture or clip: camera, place, size, text."""
    catalog = get_service(request).catalog

    def work() -> dict[str, Any]:
        piece, found = catalog.get(item), catalog.browser.details(item)
        if found is None:
            raise HTTPProblem(404, "There is no such picture or clip in the library.")
        stored, details = found
        return items_json(catalog, [piece])[0] | {
            "bytes": stored.signature.size,
            "added": details.added,
            "camera": details.camera,
            "place": details.place,
            "latitude": details.latitude,
            "longitude": details.longitude,
            "text": details.ocr_text or None,
        }

    return await get_service(request).lookup_limiter.run(work)


@router.get("/similar", response_model=schemas.SimilarItems, responses=error_responses(404, 503))
async def similar_items(
    request: Request, item: schemas.ItemId, query: Annotated[schemas.SimilarQuery, Query()]
) -> dict[str, Any]:
    """Return the items that look most like one, without itself."""
    catalog = get_service(request).catalog

    def work() -> list[dict[str, Any]]:
        piece = catalog.get(item)
        hits = catalog.search(SearchRequest(like=[str(item)]), query.limit + 1)
        others = [hit for hit in hits if hit.path != piece.path]
        return items_json(catalog, others[: query.limit])

    return {"hits": await get_service(request).search_limiter.run(work)}


@router.get("/stack", response_model=schemas.StackedItems, responses=error_responses(404, 503))
async def stacked_items(request: Request, item: schemas.ItemId) -> dict[str, Any]:
    """Return the copies and near-duplicates of an item, and the rest of its burst."""
    catalog = get_service(request).catalog

    def work() -> dict[str, Any]:
        return {"items": items_json(catalog, catalog.stack(item))}

    return await get_service(request).search_limiter.run(work)


@router.get(
    "/thumbnail",
    response_class=Response,
    responses={200: binary("image/webp"), **error_responses(403, 404, 503)},
)
async def get_thumbnail(
    request: Request,
    item: schemas.ItemId,
    size: Annotated[Literal["256", "640"], Query()] = "256",
    v: Annotated[str | None, Query(max_length=100, description="`library`: cache it.")] = None,
) -> Response:
    """Return a thumbnail, at most ``size`` pixels a side; of a clip, a frame of its segment."""
    service = get_service(request)
    # Ids are permanent, but another library may be served at this address tomorrow.
    permanent = v == service.catalog.manifest.library
    headers = {
        "cache-control": "private, max-age=31536000, immutable"
        if permanent
        else "private, no-cache",
        "content-security-policy": MEDIA_POLICY,
        "etag": f'"{service.catalog.manifest.library}-{item}-{size}"',
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        await service.lookup_limiter.run(service.catalog.get, item)
        return Response(status_code=304, headers=headers)
    webp = await service.decode_limiter.run(service.thumbnails.get, item, int(size))
    return Response(webp, media_type="image/webp", headers=headers)


@router.get(
    "/picture",
    response_class=Response,
    responses={
        200: binary("image/*"),
        206: binary("image/*") | {"description": "A byte range of it."},
        **_FILE_ERRORS,
    },
)
async def get_picture(request: Request, item: schemas.ItemId) -> Response:
    """Return a picture's file, or a WebP of it if browsers cannot show the file."""
    service = get_service(request)
    piece = await service.lookup_limiter.run(service.catalog.get, item)
    if piece.kind != "picture":
        raise HTTPProblem(404, "This is a clip, not a picture.")
    if suffix(piece) in IMAGE_TYPES:
        return await _file_response(request, piece, IMAGE_TYPES[suffix(piece)])
    webp = await service.decode_limiter.run(encode_webp, service.catalog, piece, MAX_SIDE)
    return Response(
        webp, media_type="image/webp", headers={"content-security-policy": MEDIA_POLICY}
    )


@router.get(
    "/clip",
    response_class=Response,
    responses={
        200: binary("video/*"),
        206: binary("video/*") | {"description": "A byte range of it."},
        **_FILE_ERRORS,
    },
)
async def get_clip(request: Request, item: schemas.ItemId) -> Response:
    """Return a clip's file, whole or a byte range."""
    service = get_service(request)
    piece = await service.lookup_limiter.run(service.catalog.get, item)
    if piece.kind != "clip":
        raise HTTPProblem(404, "This is a picture, not a clip.")
    media_type = VIDEO_TYPES.get(suffix(piece), "application/octet-stream")
    return await _file_response(request, piece, media_type)


@router.get(
    "/file",
    response_class=Response,
    responses={
        200: binary("application/octet-stream"),
        206: binary("application/octet-stream") | {"description": "A byte range of it."},
        **_FILE_ERRORS,
    },
)
async def download_file(request: Request, item: schemas.ItemId) -> Response:
    """Download the original file of a picture or clip."""
    service = get_service(request)
    piece = await service.lookup_limiter.run(service.catalog.get, item)
    response = await _file_response(request, piece, "application/octet-stream")
    # Percent-encoded, so that no name can break the header (RFC 6266).
    name = quote(piece.path.name.encode("utf-8", "replace"), safe="")
    response.headers["content-disposition"] = f"attachment; filename*=UTF-8''{name}"
    return response


@router.post("/reveal", status_code=204, responses=error_responses(403, 404, 503))
async def reveal_item(request: Request, item: schemas.ItemId) -> None:
    """Open the item's folder in the file manager; only from the machine itself."""
    service = get_service(request)
    service.local.check(request.scope)

    def work() -> None:
        piece = service.catalog.get(item)
        file, _ = service.catalog.open_file(piece)  # it is there, and may be shown
        file.close()
        reveal_file(piece.path)

    await service.lookup_limiter.run(work)


async def _file_response(request: Request, piece: MediaRef, media_type: str) -> Response:
    service = get_service(request)
    file, status = await service.lookup_limiter.run(service.catalog.open_file, piece)
    etag = f"{status.st_size:x}-{status.st_mtime_ns:x}"
    return stream(
        file, status.st_size, etag, media_type, request.headers, head=is_head(request.scope)
    )
