"""The FastAPI application: search, pictures, clips and the web page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Response

from polyglance import __version__
from polyglance.search.library import Library
from polyglance.search.query import Hit, MediaRef
from polyglance.serve import page, schemas
from polyglance.serve.auth import AuthMiddleware
from polyglance.serve.catalog import LibraryCatalog, SearchRequest
from polyglance.serve.errors import HTTPProblem, error_responses, install_error_handlers
from polyglance.serve.explain import HitModels, SupportsAnswer, SupportsExplain
from polyglance.serve.explain import router as explain_router
from polyglance.serve.limits import CLIENT, ConcurrencyLimiter, FairShare
from polyglance.serve.proxies import PublicUrl, TrustedProxies
from polyglance.serve.streaming import MEDIA_POLICY, stream
from polyglance.serve.thumbnails import (
    IMAGE_TYPES,
    MAX_SIDE,
    VIDEO_TYPES,
    Thumbnails,
    encode_webp,
    suffix,
)
from polyglance.serve.uploads import UploadLimits, UploadReceiver
from polyglance.vision.uploads import UploadError, read_upload

if TYPE_CHECKING:
    from PIL.Image import Image

router = APIRouter(prefix="/api")


def _binary(*media_types: str) -> dict[str, Any]:
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {"content": dict.fromkeys(media_types, binary)}


class Service:
    """A library and the concurrency limits of each kind of work."""

    def __init__(
        self,
        library: Library,
        *,
        explainer: SupportsExplain | None = None,
        answerer: SupportsAnswer | None = None,
        upload_limits: UploadLimits | None = None,
    ) -> None:
        self.catalog = LibraryCatalog(library)
        self.hit_models = HitModels(self.catalog, explainer, answerer)
        self.thumbnails = Thumbnails(self.catalog)
        self.uploads = UploadReceiver(upload_limits or UploadLimits())
        # Searches and decoding take the cores: whoever sends many requests yields to the others.
        self.share = FairShare()
        # One query already uses all cores; the second slot is for another client.
        self.search_limiter = ConcurrencyLimiter(2, max_waiting=200, share=self.share)
        self.lookup_limiter = ConcurrencyLimiter(8, max_waiting=1000)
        # Decoding a large picture takes hundreds of megabytes.
        self.decode_limiter = ConcurrencyLimiter(2, max_waiting=1000, share=self.share)
        # Each upload takes a decoder process.
        self.upload_limiter = ConcurrencyLimiter(4, max_waiting=16)


def create_app(
    library: Library,
    *,
    token: str | None = None,
    loopback: bool = True,
    explainer: SupportsExplain | None = None,
    answerer: SupportsAnswer | None = None,
    upload_limits: UploadLimits | None = None,
    public_url: PublicUrl | None = None,
    proxies: TrustedProxies | None = None,
) -> FastAPI:
    """Return the web application of a library.

    Args:
        library: The library to search.
        token: Access token that every request must carry; None for no protection.
        loopback: Whether the server can be reached from this machine only.
        explainer: Model that attributes hits to the words of a query.
        answerer: Model that answers questions about pictures.
        upload_limits: Size and speed of uploads; None for the defaults.
        public_url: Address that browsers use, if it is that of a proxy.
        proxies: Proxies whose ``X-Forwarded-*`` headers are believed; None for none.
    """
    app = FastAPI(
        title="Polyglance",
        version=__version__,
        summary="Search pictures and clips in any language by what they show.",
        docs_url=None,
        redoc_url=None,
        responses={422: {"model": schemas.Problem, "description": "Invalid request."}},
    )
    app.state.service = Service(
        library, explainer=explainer, answerer=answerer, upload_limits=upload_limits
    )
    install_error_handlers(app)
    app.include_router(router)
    app.include_router(explain_router)
    page.serve_page(app)
    app.add_middleware(
        AuthMiddleware,
        token=token,
        loopback=loopback,
        public_url=public_url,
        proxies=proxies or TrustedProxies(),
    )
    return app


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@router.get("/search", response_model=schemas.SearchResponse, responses=error_responses(404, 503))
async def search(
    request: Request, response: Response, query: Annotated[schemas.SearchQuery, Query()]
) -> dict[str, Any]:
    """Find pictures and clips by words in any language, by pictures, or by both."""
    if query.q is None and not query.like:
        raise HTTPProblem(422, "The search is empty: give words, a picture or both.")
    search_request = SearchRequest(
        text=query.q,
        without=query.without,
        like=query.like,
        unlike=query.unlike,
        folders=query.folder,
        kind=query.kind,
        since=query.since,
        until=query.until,
        language=query.language,
        all_segments=query.spans,
    )
    end = min(query.offset + query.limit, schemas.MAX_HITS)
    service = _service(request)

    def work() -> list[dict[str, Any]]:
        # One hit more than needed tells whether there is another page.
        hits = service.catalog.search(search_request, end + 1)
        return _to_json(service.catalog, hits[query.offset :])

    hits = await service.search_limiter.run(work)
    response.headers["cache-control"] = "no-store"
    count = end - query.offset
    return {"hits": hits[:count], "more": len(hits) > count and end < schemas.MAX_HITS}


@router.post(
    "/pictures",
    response_model=schemas.UploadedPicture,
    responses=error_responses(408, 413, 415, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            **_binary("image/jpeg", "image/png", "image/webp", "image/gif", "image/heic"),
        }
    },
)
async def upload_picture(request: Request) -> dict[str, Any]:
    """Upload a JPEG, PNG, WebP, GIF, HEIC or RAW file as the body, to search by it."""
    service, client = _service(request), CLIENT.get()

    def decode(data: bytes) -> Image:
        return read_upload(data, background=service.share.is_heavy(client))

    async with service.uploads.body(request) as data:
        try:
            picture = await service.upload_limiter.run(decode, data)
        except UploadError as error:
            reason = str(error)
            raise HTTPProblem(415, f"{reason[:1].upper()}{reason[1:]}.") from error
    token = await service.search_limiter.run(service.catalog.picture_token, picture)
    return {"picture": token}


@router.get("/library", response_model=schemas.LibraryInfo, responses=error_responses(503))
async def library_info(request: Request) -> dict[str, Any]:
    """Describe the library: counts, folders, model."""
    catalog, hit_models = _service(request).catalog, _service(request).hit_models

    def work() -> dict[str, Any]:
        overview = catalog.overview()
        return {
            "pictures": overview.counts.pictures,
            "clips": overview.counts.clips,
            "model": catalog.manifest.model,
            "folders": [{"folder": folder, "files": files} for folder, files in overview.folders],
            "explains": hit_models.explains,
            "answers": hit_models.languages,
        }

    return await _service(request).lookup_limiter.run(work)


@router.get("/languages", response_model=list[schemas.InterfaceLanguage])
async def languages() -> list[dict[str, str]]:
    """List the languages of the page; queries may be in others."""
    return page.interface_languages()


@router.get("/items/{item}", response_model=schemas.Item, responses=error_responses(404, 503))
async def item_info(request: Request, item: schemas.ItemId) -> dict[str, Any]:
    """Describe a picture or clip."""
    service = _service(request)
    return await service.lookup_limiter.run(
        lambda: _to_json(service.catalog, [service.catalog.get(item)])[0]
    )


@router.get(
    "/items/{item}/thumbnail",
    response_class=Response,
    responses={200: _binary("image/webp"), **error_responses(404, 503)},
)
async def thumbnail(
    request: Request, item: schemas.ItemId, size: Annotated[Literal["256", "640"], Query()] = "256"
) -> Response:
    """Return a thumbnail, at most ``size`` pixels a side; of a clip, a frame of its segment."""
    service = _service(request)
    # Ids are permanent, but another library may be served at this address tomorrow.
    headers = {
        "cache-control": "private, no-cache",
        "content-security-policy": MEDIA_POLICY,
        "etag": f'"{service.catalog.manifest.library}-{item}-{size}"',
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        await service.lookup_limiter.run(service.catalog.get, item)
        return Response(status_code=304, headers=headers)
    webp = await service.decode_limiter.run(service.thumbnails.get, item, int(size))
    return Response(webp, media_type="image/webp", headers=headers)


@router.get(
    "/items/{item}/picture",
    response_class=Response,
    responses={
        200: _binary("image/*"),
        206: _binary("image/*") | {"description": "A byte range of it."},
        **error_responses(404, 416, 503),
    },
)
async def picture(request: Request, item: schemas.ItemId) -> Response:
    """Return a picture's file, or a WebP of it if browsers cannot show the file."""
    service = _service(request)
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
    "/items/{item}/clip",
    response_class=Response,
    responses={
        200: _binary("video/*"),
        206: _binary("video/*") | {"description": "A byte range of it."},
        **error_responses(404, 416, 503),
    },
)
async def clip(request: Request, item: schemas.ItemId) -> Response:
    """Return a clip's file, whole or a byte range."""
    service = _service(request)
    piece = await service.lookup_limiter.run(service.catalog.get, item)
    if piece.kind != "clip":
        raise HTTPProblem(404, "This is a picture, not a clip.")
    media_type = VIDEO_TYPES.get(suffix(piece), "application/octet-stream")
    return await _file_response(request, piece, media_type)


async def _file_response(request: Request, piece: MediaRef, media_type: str) -> Response:
    service = _service(request)
    file, status = await service.lookup_limiter.run(service.catalog.open_file, piece)
    etag = f"{status.st_size:x}-{status.st_mtime_ns:x}"
    return stream(file, status.st_size, etag, media_type, request.headers)


def _to_json(catalog: LibraryCatalog, pieces: Sequence[MediaRef]) -> list[dict[str, Any]]:
    return [
        {
            "id": piece.id,
            "kind": piece.kind,
            "name": name,
            "folder": folder,
            "taken": piece.taken.isoformat(),
            "width": piece.width,
            "height": piece.height,
            "seconds": piece.seconds,
            "span": piece.span,
            **({"score": round(piece.score, 4)} if isinstance(piece, Hit) else {}),
        }
        for piece, (folder, name) in zip(pieces, catalog.display_names(pieces), strict=True)
    ]
