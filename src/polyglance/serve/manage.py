"""Add folders, scan them and watch them: only from the machine that the server runs on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from polyglance.errors import PolyglanceError, error_reason
from polyglance.search.scan import is_missing, resolve_path
from polyglance.serve import manage_schemas as schemas
from polyglance.serve.bodies import json_body, read_json
from polyglance.serve.errors import HTTPProblem, error_responses
from polyglance.serve.head import is_head
from polyglance.serve.scanning import Scan
from polyglance.serve.service import Service, get_service

MAX_DIRECTORIES = 2000
EVENT_SECONDS = 0.25
"""Between two events of a scan."""
HEARTBEAT_SECONDS = 15.0
"""After which an event is sent although nothing changed, so that nobody closes the connection."""
SUGGESTED = ("Pictures", "Photos", "Bilder", "Fotos", "DCIM", "Videos", "Movies", "Downloads")


def _check_local(request: Request) -> None:
    get_service(request).local.check(request.scope)


router = APIRouter(
    prefix="/api/manage",
    tags=["manage"],
    dependencies=[Depends(_check_local)],
    responses=error_responses(403, 503),
)
_BODY = error_responses(408, 413, 415)


@router.get("/folders", response_model=schemas.WatchedFolders)
async def list_watched_folders(request: Request) -> dict[str, Any]:
    """List the folders of the library."""
    service = get_service(request)
    return await service.lookup_limiter.run(_watched_folders, service)


@router.post(
    "/folders",
    response_model=schemas.WatchedFolders,
    status_code=201,
    responses=_BODY,
    openapi_extra={"requestBody": json_body(schemas.FolderPath)},
)
async def add_watched_folder(request: Request) -> dict[str, Any]:
    """Add a folder to the library; a scan of it starts."""
    service = get_service(request)
    body = await read_json(request, service.json_bodies, schemas.FolderPath)

    def work() -> dict[str, Any]:
        path = _directory(body.path)
        try:
            service.scans.add(path)
        except PolyglanceError as error:
            raise HTTPProblem(422, f"path: {error}.") from error
        service.watcher.restart()
        return _watched_folders(service)

    return await service.lookup_limiter.run(work)


@router.delete("/folders", response_model=schemas.WatchedFolders, responses=error_responses(404))
async def remove_watched_folder(
    request: Request, query: Annotated[schemas.FolderPath, Query()]
) -> dict[str, Any]:
    """Remove a folder from the library; its files stay on the disk."""
    service = get_service(request)

    def work() -> dict[str, Any]:
        if query.path not in service.catalog.roots():
            raise HTTPProblem(404, "The library has no such folder.")
        service.scans.stop(10.0)
        service.catalog.remove_folder(query.path)
        service.watcher.restart()
        return _watched_folders(service)

    return await service.lookup_limiter.run(work)


@router.get("/directories", response_model=schemas.Directories)
async def list_directories(
    request: Request, query: Annotated[schemas.DirectoriesQuery, Query()]
) -> dict[str, Any]:
    """List the folders in a folder of the machine, to choose one."""
    return await get_service(request).lookup_limiter.run(_directories, query.path)


@router.put(
    "/watching",
    response_model=schemas.Watching,
    responses=_BODY,
    openapi_extra={"requestBody": json_body(schemas.Watching)},
)
async def set_watching(request: Request) -> dict[str, bool]:
    """Begin or stop to watch the folders for new files."""
    service = get_service(request)
    body = await read_json(request, service.json_bodies, schemas.Watching)
    work = service.watcher.start if body.watching else service.watcher.stop
    await service.lookup_limiter.run(work)
    return {"watching": service.watcher.watching}


@router.get("/scan", response_model=schemas.ScanStatus)
async def get_scan(request: Request) -> dict[str, Any]:
    """Return the scan that runs, or the last one."""
    return _scan_json(get_service(request).scans.current)


@router.post("/scan", response_model=schemas.ScanStatus, status_code=202)
async def start_scan(request: Request) -> dict[str, Any]:
    """Scan all folders of the library, unless a scan runs."""
    service = get_service(request)
    return _scan_json(await service.lookup_limiter.run(service.scans.scan_all))


@router.delete("/scan", response_model=schemas.ScanStatus, status_code=202)
async def stop_scan(request: Request) -> dict[str, Any]:
    """Ask the scan that runs to stop; what was indexed stays."""
    return _scan_json(get_service(request).scans.stop())


@router.get(
    "/scan/events",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events `scan`, whose data is a ScanStatus in JSON.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def scan_events(request: Request) -> Response:
    """Send the state of the scan whenever it changes, until it ends."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if is_head(request.scope):
        return Response(headers=headers, media_type="text/event-stream")
    return StreamingResponse(
        _events(get_service(request)), headers=headers, media_type="text/event-stream"
    )


@router.get("/unreadable", response_model=schemas.UnreadableFiles)
async def list_unreadable_files(
    request: Request, query: Annotated[schemas.UnreadableQuery, Query()]
) -> dict[str, Any]:
    """List the files that could not be read, each with the reason."""
    service = get_service(request)

    def work() -> dict[str, Any]:
        files = service.catalog.unreadable()
        page = files[query.offset : query.offset + query.limit]
        return {
            "total": len(files),
            "files": [
                {"name": name, "folder": folder, "path": file.path, "reason": file.reason}
                for file, (folder, name) in page
            ],
        }

    return await service.lookup_limiter.run(work)


def _watched_folders(service: Service) -> dict[str, Any]:
    confirmed, tree = set(service.scans.folders), service.catalog.overview().tree
    return {
        "folders": [
            {
                "path": path,
                "folder": label,
                "files": tree[label].files if label in tree else 0,
                "exists": not is_missing(path),
                "confirmed": path in confirmed,
            }
            for path, label in service.catalog.roots().items()
        ],
        "watching": service.watcher.watching,
    }


def _directory(text: str) -> str:
    """Return the path of an existing folder; raise 422 if it is none."""
    try:
        if not Path(text).expanduser().is_absolute():
            raise HTTPProblem(422, "path: give an absolute path.")
        path = resolve_path(text)
        if not Path(path).is_dir():
            raise HTTPProblem(422, "path: there is no such folder.")
        os.scandir(path).close()  # it can be read
    except (PolyglanceError, OSError, ValueError, RuntimeError) as error:
        reason = error_reason(error) if isinstance(error, OSError) else "is not a path"
        raise HTTPProblem(422, f"path: the folder cannot be read ({reason}).") from error
    return path


def _directories(text: str | None) -> dict[str, Any]:
    home = Path.home()
    path = Path(_directory(str(home) if text is None else text))
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                entry.name.encode()
                if not entry.name.startswith(".") and entry.is_dir():
                    found.append({"name": entry.name, "path": (path / entry.name).as_posix()})
            except (OSError, UnicodeEncodeError):
                continue
    suggestions = [home / name for name in SUGGESTED]
    return {
        "path": path.as_posix(),
        "parent": None if path.parent == path else path.parent.as_posix(),
        "directories": sorted(found, key=lambda one: one["name"].casefold())[:MAX_DIRECTORIES],
        "suggestions": [
            {"name": one.name, "path": one.as_posix()} for one in suggestions if one.is_dir()
        ],
    }


def _scan_json(scan: Scan) -> dict[str, Any]:
    report = scan.report
    return {
        "id": scan.id,
        "state": scan.state,
        "done": scan.done,
        "total": scan.total,
        "added": report.added,
        "changed": report.changed,
        "moved": report.moved,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "unreadable": len(report.bad),
        "started": scan.started,
        "finished": scan.finished,
        "error": scan.error,
    }


async def _events(service: Service) -> AsyncIterator[str]:
    """Yield an event for each change, a few a second at most, until the scan has ended."""
    async with service.events_limiter.slot():
        version = -1
        while True:
            waited = await anyio.to_thread.run_sync(
                service.scans.wait, version, HEARTBEAT_SECONDS, abandon_on_cancel=True
            )
            version, scan = waited
            data = schemas.ScanStatus(**_scan_json(scan)).model_dump_json()
            yield f"event: scan\ndata: {data}\n\n"
            if scan.state != "scanning":
                return
            await anyio.sleep(EVENT_SECONDS)
