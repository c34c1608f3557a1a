"""The web page: plain HTML, CSS and ES modules beside this file, without a build step."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response

from polyglance.languages import get_language

LANGUAGES = ("en", "de", "fr", "cs", "pt", "zh", "ar")
"""Interface languages; each has a ``messages/*.json``."""

HOME_REQUESTS = (
    "/api/timeline?unit=month&sort=taken",
    "/api/items?sort=taken&offset=0&limit=100",
    "/api/library",
)
"""What the page asks for to show the newest pictures."""

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


def _preloads(request: Request) -> dict[str, str]:
    """Return a Link header with what the home needs: asked for before any script has been read."""
    if request.url.path != "/" or request.url.query:
        return {}
    accepted = re.findall(r"(?:^|,)\s*([a-z]+)", request.headers.get("accept-language", "").lower())
    language = next((code for code in accepted if code in LANGUAGES), LANGUAGES[0])
    urls = (*HOME_REQUESTS, f"/messages/{language}.json")
    links = [f"<{url}>; rel=preload; as=fetch; crossorigin" for url in urls]
    return {"link": ", ".join(links)}


def _handler(path: Path) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    content = path.read_bytes()
    etag = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
    headers = {"cache-control": "no-cache", "etag": etag}

    async def send_file(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers | _preloads(request))
        return Response(
            content,
            media_type=_MEDIA_TYPES[path.suffix],
            headers=headers | _preloads(request),
        )

    return send_file
