"""Browse the library: a timeline with a scrubber, folders, what was added last, and filters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from polyglance.search.browsing import View
from polyglance.serve import schemas
from polyglance.serve.errors import HTTPProblem, error_responses
from polyglance.serve.item_json import items_json
from polyglance.serve.service import Service, get_service

MAX_LISTED_FOLDERS = 2000

router = APIRouter(prefix="/api", tags=["browse"])


@router.get("/timeline", response_model=schemas.Timeline, responses=error_responses(503))
async def timeline(
    request: Request, response: Response, query: Annotated[schemas.TimelineQuery, Query()]
) -> dict[str, Any]:
    """Count the items of each year, month or day, with the offsets at which they begin.

    With `sort=added`, always of each day on which some were added.
    """
    catalog = get_service(request).catalog

    def work() -> dict[str, Any]:
        browser, where = catalog.browser, catalog.filter(query)
        if query.sort == "taken":
            view, buckets = browser.timeline(where, query.unit)
        else:
            view, buckets = browser.added_timeline(where)
        shapes = browser.shapes(view)
        return {
            "snapshot": view.token,
            "total": len(view),
            "buckets": [
                {
                    "date": one.date,
                    "count": one.count,
                    "offset": one.offset,
                    "shapes": shapes[one.offset : one.offset + one.count],
                }
                for one in buckets
            ],
        }

    response.headers["cache-control"] = "no-store"
    return await get_service(request).lookup_limiter.run(work)


@router.get("/items", response_model=schemas.ItemPage, responses=error_responses(503))
async def list_items(
    request: Request, response: Response, query: Annotated[schemas.ItemsQuery, Query()]
) -> dict[str, Any]:
    """List items, the newest first or those that were added last; any offset costs the same."""
    service = get_service(request)

    def work() -> dict[str, Any]:
        view = _view(service, query)
        page = service.catalog.browser.page(view, query.offset, query.limit)
        listed = items_json(service.catalog, [media for _, media in page])
        return {
            "snapshot": view.token,
            "total": len(view),
            "offset": query.offset,
            "items": [item | {"rank": rank} for (rank, _), item in zip(page, listed, strict=True)],
        }

    response.headers["cache-control"] = "no-store"
    return await service.lookup_limiter.run(work)


@router.get("/folders", response_model=schemas.FolderList, responses=error_responses(404, 503))
async def list_folders(
    request: Request, query: Annotated[schemas.FoldersQuery, Query()]
) -> dict[str, Any]:
    """List the indexed folders, or those in a folder, with counts and covers."""
    catalog = get_service(request).catalog

    def work() -> dict[str, Any]:
        tree = catalog.overview().tree
        if query.parent is None:
            names = [name for name in tree if "/" not in name]
        elif query.parent in tree:
            names = list(tree[query.parent].children)
        else:
            raise HTTPProblem(404, "The library has no such folder.")
        names = sorted(names, key=str.casefold)[:MAX_LISTED_FOLDERS]
        covers = catalog.browser.media_ids([tree[name].cover for name in names])
        return {
            "folders": [
                {
                    "folder": name,
                    "name": tree[name].name,
                    "files": tree[name].files,
                    "folders": len(tree[name].children),
                    "cover": covers.get(tree[name].cover),
                }
                for name in names
            ]
        }

    return await get_service(request).lookup_limiter.run(work)


@router.get("/facets", response_model=schemas.Facets, responses=error_responses(503))
async def facets(
    request: Request, query: Annotated[schemas.FilterQuery, Query()]
) -> dict[str, Any]:
    """Count the years of the items that match, and all cameras and places of the library."""
    catalog = get_service(request).catalog

    def work() -> dict[str, Any]:
        _, years = catalog.browser.timeline(catalog.filter(query), "year")

        def counts(rows: list[tuple[str, int]]) -> list[dict[str, Any]]:
            return [{"name": name, "files": files} for name, files in rows]

        return {
            "cameras": counts(catalog.browser.facets("camera")),
            "places": counts(catalog.browser.facets("place")),
            "years": counts([(year.date, year.count) for year in years]),
        }

    return await get_service(request).lookup_limiter.run(work)


@router.get(
    "/items/{item}/neighbors", response_model=schemas.Neighbors, responses=error_responses(404, 503)
)
async def neighbors(
    request: Request,
    item: schemas.ItemId,
    query: Annotated[schemas.ViewQuery, Query()],
) -> dict[str, Any]:
    """Return where an item is in a list of items, and which come before and after it."""
    service = get_service(request)

    def work() -> dict[str, Any]:
        browser, view = service.catalog.browser, _view(service, query)
        rank = browser.rank(view, service.catalog.get(item).id)
        near: dict[int, Any] = {}
        if rank is not None:
            page = browser.page(view, max(0, rank - 1), 3)
            listed = items_json(service.catalog, [media for _, media in page])
            near = {at: one for (at, _), one in zip(page, listed, strict=True)}
        return {
            "snapshot": view.token,
            "total": len(view),
            "rank": rank,
            "previous": None if rank is None else near.get(rank - 1),
            "next": None if rank is None else near.get(rank + 1),
        }

    return await service.lookup_limiter.run(work)


def _view(service: Service, query: schemas.ViewQuery) -> View:
    catalog = service.catalog
    return catalog.browser.view(catalog.filter(query), query.sort, query.snapshot)
