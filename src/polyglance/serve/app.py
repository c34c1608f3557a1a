"""The FastAPI application: search, browsing, pictures, clips and the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response

from polyglance import __version__
from polyglance.search.library import Library
from polyglance.serve import browse, embed, items, manage, page, schemas
from polyglance.serve.auth import AuthMiddleware
from polyglance.serve.catalog import SearchRequest
from polyglance.serve.documentation import add_documentation, operation_id
from polyglance.serve.errors import HTTPProblem, error_responses, install_error_handlers
from polyglance.serve.explain import SupportsAnswer, SupportsExplain
from polyglance.serve.explain import router as explain_router
from polyglance.serve.head import HeadMiddleware
from polyglance.serve.item_json import binary, items_json, understood_json
from polyglance.serve.limits import CLIENT
from polyglance.serve.local import LocalAccess
from polyglance.serve.proxies import PublicUrl, TrustedProxies
from polyglance.serve.service import Service, get_service
from polyglance.serve.uploads import UploadLimits
from polyglance.vision.uploads import UploadError, read_upload

if TYPE_CHECKING:
    from PIL.Image import Image

router = APIRouter(prefix="/api", tags=["search"])


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
    manage_folders: bool = True,
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
        manage_folders: Whether folders can be added from the page, on this machine; never where
            others can reach the server, by its address or through a proxy.
    """
    trusted = proxies or TrustedProxies()
    is_private = loopback and public_url is None and not trusted
    app = FastAPI(
        title="Polyglance",
        version=__version__,
        summary="Search pictures and clips in any language by what they show.",
        docs_url=None,
        redoc_url=None,
        responses={422: {"model": schemas.Problem, "description": "Invalid request."}},
        generate_unique_id_function=operation_id,
    )
    app.state.service = Service(
        library,
        local=LocalAccess(enabled=manage_folders and is_private and not library.read_only),
        explainer=explainer,
        answerer=answerer,
        upload_limits=upload_limits,
    )
    install_error_handlers(app)
    for each in (router, browse.router, items.router, explain_router, embed.router, manage.router):
        app.include_router(each)
    page.serve_page(app)
    add_documentation(app, protected=token is not None)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(
        AuthMiddleware,
        token=token,
        loopback=loopback,
        public_url=public_url,
        proxies=trusted,
    )
    return app


@router.get("/search", response_model=schemas.SearchResponse, responses=error_responses(404, 503))
async def search(
    request: Request, response: Response, query: Annotated[schemas.SearchQuery, Query()]
) -> dict[str, Any]:
    """Find pictures and clips by words in any language, by pictures, or by both."""
    if query.q is None and not (query.like or query.without or query.unlike):
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
        cameras=query.camera,
        places=query.place,
        language=query.language,
        all_segments=query.spans,
        like_weights=query.like_weight,
        unlike_weights=query.unlike_weight,
        min_score=query.min_score,
        off=query.off,
        correct=query.correct,
        literal=query.literal,
        stack=query.stack,
    )
    end = min(query.offset + query.limit, schemas.MAX_HITS)
    service = get_service(request)

    def work() -> dict[str, Any]:
        # One hit more than needed tells whether there is another page.
        results = service.catalog.search(search_request, end + 1)
        return {
            "hits": items_json(service.catalog, results[query.offset : end]),
            "more": end < len(results) and end < schemas.MAX_HITS,
            "fold": results.fold,
            "fits": None if results.fold is None else not results.nothing_fits,
            "corrected": results.searched_for,
            "understood": understood_json(results),
        }

    response.headers["cache-control"] = "no-store"
    return await service.search_limiter.run(work)


@router.post(
    "/pictures",
    response_model=schemas.UploadedPicture,
    responses=error_responses(408, 413, 415, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            # Generated clients know the first alone.
            **binary("application/octet-stream", "image/*"),
        }
    },
)
async def upload_picture(request: Request) -> dict[str, Any]:
    """Upload a JPEG, PNG, WebP, GIF, HEIC or RAW file as the body, to search by it."""
    service, client = get_service(request), CLIENT.get()

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
    service = get_service(request)
    catalog, hit_models = service.catalog, service.hit_models

    def work() -> dict[str, Any]:
        overview = catalog.overview()
        return {
            "pictures": overview.counts.pictures,
            "clips": overview.counts.clips,
            "library": catalog.manifest.library,
            "model": catalog.model_name,
            "folders": [{"folder": folder, "files": files} for folder, files in overview.folders],
            "manages": service.local.allows(request.scope),
            "explains": hit_models.explains,
            "answers": hit_models.languages,
        }

    return await service.lookup_limiter.run(work)


@router.get("/languages", response_model=list[schemas.InterfaceLanguage])
async def languages() -> list[dict[str, str]]:
    """List the languages of the page; queries may be in others."""
    return page.interface_languages()
