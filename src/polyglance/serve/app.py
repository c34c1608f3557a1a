"""The service: searching, pictures and clips over HTTP, and the page that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response

from polyglance import __version__
from polyglance.search.library import Library
from polyglance.search.query import Hit, Piece
from polyglance.serve import page, schemas
from polyglance.serve.closer_look import Answers, CloserLook, Explains
from polyglance.serve.closer_look import router as closer_router
from polyglance.serve.desk import Desk
from polyglance.serve.doorkeeper import Doorkeeper
from polyglance.serve.pictures import PLAYED, SCREEN, SHOWN, Thumbnails, as_webp, suffix
from polyglance.serve.problems import Refused, answer_in_sentences, promised
from polyglance.serve.shelf import Question, Shelf
from polyglance.serve.streaming import MEDIA_POLICY, stream
from polyglance.vision.uploads import MOST_BYTES, UploadError, read_upload

UPLOAD_SECONDS = 60.0
"""How long sending a picture may take."""

router = APIRouter(prefix="/api")


def _bytes(*kinds: str) -> dict[str, Any]:
    plain = {"schema": {"type": "string", "format": "binary"}}
    return {"content": dict.fromkeys(kinds, plain)}


class Service:
    """A library and the desks that its work is done at."""

    def __init__(
        self,
        library: Library,
        *,
        explainer: Explains | None = None,
        answerer: Answers | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.shelf = Shelf(library)
        self.closer = CloserLook(self.shelf, explainer, answerer)
        self.thumbnails = Thumbnails(self.shelf)
        self.most_bytes = most_bytes
        # The model uses all cores by itself; a second query finds its way while one waits.
        self.searching = Desk(2, waiting=200)
        self.looking = Desk(8, waiting=1000)
        # A large picture takes hundreds of megabytes while it is decoded.
        self.drawing = Desk(2, waiting=1000)
        # Each holds a body of twenty megabytes, then a decoder.
        self.uploading = Desk(4, waiting=16)

    async def body(self, request: Request) -> bytes:
        """A request's body, which is measured as it comes."""
        too_large = Refused(
            413,
            f"The file has more than the {self.most_bytes:,} bytes allowed.",
            {"connection": "close"},
        )
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > self.most_bytes:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size > self.most_bytes:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, "The file took too long to arrive.") from None
        return b"".join(parts)


def create_app(
    library: Library,
    *,
    token: str | None = None,
    loopback: bool = True,
    explainer: Explains | None = None,
    answerer: Answers | None = None,
    most_bytes: int = MOST_BYTES,
) -> FastAPI:
    """The service of a library; ``loopback`` where only this machine can reach it.

    ``explainer`` tells where words look, and ``answerer`` answers questions about pictures.
    """
    app = FastAPI(
        title="Polyglance",
        version=__version__,
        summary="Pictures and clips, found in any language by what they show.",
        docs_url=None,
        redoc_url=None,
        responses={422: {"model": schemas.Problem, "description": "Not understood, and why."}},
    )
    app.state.service = Service(
        library, explainer=explainer, answerer=answerer, most_bytes=most_bytes
    )
    answer_in_sentences(app)
    app.include_router(router)
    app.include_router(closer_router)
    page.serve_page(app)
    app.add_middleware(Doorkeeper, token=token, loopback=loopback)
    return app


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@router.get("/search", response_model=schemas.Answer, responses=promised(404, 503))
async def search(
    request: Request, response: Response, asked: Annotated[schemas.SearchQuery, Query()]
) -> dict[str, Any]:
    """Find pictures and clips by words in any language, by pictures, or by both."""
    if asked.q is None and not asked.like:
        raise Refused(422, "There is nothing to look for: give words, a picture or both.")
    question = Question(
        text=asked.q,
        without=asked.without,
        like=asked.like,
        unlike=asked.unlike,
        folders=asked.folder,
        kind=asked.kind,
        since=asked.since,
        until=asked.until,
        language=asked.language,
        every_span=asked.spans,
    )
    end = min(asked.offset + asked.limit, schemas.MOST_HITS)
    service = _service(request)

    def work() -> list[dict[str, Any]]:
        found = service.shelf.search(question, end + 1)
        return _told(service.shelf, found[asked.offset :])

    hits = await service.searching.run(work)
    response.headers["cache-control"] = "no-store"
    wanted = end - asked.offset
    return {"hits": hits[:wanted], "more": len(hits) > wanted and end < schemas.MOST_HITS}


@router.post(
    "/pictures",
    response_model=schemas.RememberedPicture,
    responses=promised(408, 413, 415, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            **_bytes("image/jpeg", "image/png", "image/webp", "image/gif"),
        }
    },
)
async def remember_picture(request: Request) -> dict[str, Any]:
    """Send a JPEG, PNG, WebP or GIF as the body, to search by it."""
    service = _service(request)
    async with service.uploading.seat():
        data = await service.body(request)
        try:
            picture = await anyio.to_thread.run_sync(read_upload, data)
        except UploadError as error:
            said = str(error)
            raise Refused(415, f"{said[:1].upper()}{said[1:]}.") from error
        del data
        return {"picture": await service.searching.run(service.shelf.remember, picture)}


@router.get("/library", response_model=schemas.LibraryInfo, responses=promised(503))
async def library_info(request: Request) -> dict[str, Any]:
    """What the library holds, and its folders."""
    shelf, closer = _service(request).shelf, _service(request).closer

    def work() -> dict[str, Any]:
        there = shelf.overview()
        return {
            "pictures": there.counts.pictures,
            "clips": there.counts.clips,
            "model": shelf.manifest.model,
            "folders": [{"folder": folder, "files": files} for folder, files in there.folders],
            "explains": closer.explains,
            "answers": closer.languages,
        }

    return await _service(request).looking.run(work)


@router.get("/languages", response_model=list[schemas.InterfaceLanguage])
async def languages() -> list[dict[str, str]]:
    """The languages of the page; queries may be in others."""
    return page.interface_languages()


@router.get("/items/{item}", response_model=schemas.Item, responses=promised(404, 503))
async def item_info(request: Request, item: schemas.ItemId) -> dict[str, Any]:
    """What is known of a picture or clip."""
    service = _service(request)
    return await service.looking.run(lambda: _told(service.shelf, [service.shelf.found(item)])[0])


@router.get(
    "/items/{item}/thumbnail",
    response_class=Response,
    responses={200: _bytes("image/webp"), **promised(404, 503)},
)
async def thumbnail(
    request: Request, item: schemas.ItemId, size: Annotated[Literal["256", "640"], Query()] = "256"
) -> Response:
    """A small picture, ``size`` pixels on its longer side; of a clip, from its span."""
    service = _service(request)
    # What goes by a number never changes, but another library may answer here tomorrow.
    headers = {
        "cache-control": "private, no-cache",
        "content-security-policy": MEDIA_POLICY,
        "etag": f'"{service.shelf.manifest.library}-{item}-{size}"',
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        await service.looking.run(service.shelf.found, item)
        return Response(status_code=304, headers=headers)
    webp = await service.drawing.run(service.thumbnails.get, item, int(size))
    return Response(webp, media_type="image/webp", headers=headers)


@router.get(
    "/items/{item}/picture",
    response_class=Response,
    responses={
        200: _bytes("image/*"),
        206: _bytes("image/*") | {"description": "A part of it."},
        **promised(404, 416, 503),
    },
)
async def picture(request: Request, item: schemas.ItemId) -> Response:
    """A picture in full; in a kind that browsers show."""
    service = _service(request)
    found = await service.looking.run(service.shelf.found, item)
    if found.kind != "picture":
        raise Refused(404, "This is a clip, not a picture.")
    if suffix(found) in SHOWN:
        return await _file(request, found, SHOWN[suffix(found)])
    webp = await service.drawing.run(as_webp, service.shelf, found, SCREEN)
    return Response(
        webp, media_type="image/webp", headers={"content-security-policy": MEDIA_POLICY}
    )


@router.get(
    "/items/{item}/clip",
    response_class=Response,
    responses={
        200: _bytes("video/*"),
        206: _bytes("video/*") | {"description": "A part of it."},
        **promised(404, 416, 503),
    },
)
async def clip(request: Request, item: schemas.ItemId) -> Response:
    """A clip's file, whole or in ranges."""
    found = await _service(request).looking.run(_service(request).shelf.found, item)
    if found.kind != "clip":
        raise Refused(404, "This is a picture, not a clip.")
    return await _file(request, found, PLAYED.get(suffix(found), "application/octet-stream"))


async def _file(request: Request, found: Piece, media_type: str) -> Response:
    service = _service(request)
    file, status = await service.looking.run(service.shelf.open, found)
    tag = f"{status.st_size:x}-{status.st_mtime_ns:x}"
    return stream(file, status.st_size, tag, media_type, request.headers)


def _told(shelf: Shelf, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    return [
        {
            "id": piece.number,
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
        for piece, (folder, name) in zip(pieces, shelf.names(pieces), strict=True)
    ]
