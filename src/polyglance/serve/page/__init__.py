"""The web page: plain HTML, CSS and ES modules beside this file, without a build step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response

from polyglance.languages import get_language

LANGUAGES = ("en", "de", "fr", "cs", "pt", "zh", "ar")
"""Interface languages; each has a ``messages/*.json``."""

_FOLDER = Path(__file__).parent
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


def interface_languages() -> list[dict[str, str]]:
    """Return code, own name and text direction of the interface languages."""
    return [
        {
            "code": language.code,
            "name": language.native_name,
            "direction": "rtl" if language.right_to_left else "ltr",
        }
        for language in map(get_language, LANGUAGES)
    ]


def page_files() -> dict[str, Path]:
    """Return the page's files by URL path."""
    files = {
        f"/{path.relative_to(_FOLDER).as_posix()}": path
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _MEDIA_TYPES
    }
    files["/"] = files.pop("/index.html")
    return files


def serve_page(app: FastAPI) -> None:
    """Add the page's files to an application; each is read once, here."""
    for url_path, path in page_files().items():
        app.get(url_path, include_in_schema=False)(_handler(path))


def _handler(path: Path) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    content = path.read_bytes()
    etag = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
    headers = {"cache-control": "no-cache", "etag": etag}

    async def send_file(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=_MEDIA_TYPES[path.suffix], headers=headers)

    return send_file
