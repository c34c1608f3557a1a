"""The page: plain HTML, CSS and ES modules beside this file, given out as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response

from polyglance.languages import describe

LANGUAGES = ("en", "de", "fr", "cs", "pt", "zh", "ar")
"""Of the interface: each has its ``messages/*.json``."""

_FOLDER = Path(__file__).parent
_KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


def interface_languages() -> list[dict[str, str]]:
    """The languages of the page, by the names their speakers use."""
    known = map(describe, LANGUAGES)
    return [
        {
            "code": language.code,
            "name": language.native,
            "direction": "rtl" if language.right_to_left else "ltr",
        }
        for language in known
    ]


def page_files() -> dict[str, Path]:
    """The addresses of the page's files."""
    files = {
        f"/{path.relative_to(_FOLDER).as_posix()}": path
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _KINDS
    }
    files["/"] = files.pop("/index.html")
    return files


def serve_page(app: FastAPI) -> None:
    """Let an application answer with the page; its files are read once, and no others are."""
    for address, path in page_files().items():
        app.get(address, include_in_schema=False)(_answer(path))


def _answer(path: Path) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    content = path.read_bytes()
    tag = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
    headers = {"cache-control": "no-cache", "etag": tag}

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=_KINDS[path.suffix], headers=headers)

    return answer
