"""The OpenAPI document, and a page at /docs that shows it without the internet.

The page is Swagger UI from the package fastapi-offline: its files come from this server, and the
content security policy lets no others load.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from polyglance.serve.auth import COOKIE
from polyglance.serve.bodies import BODY_SCHEMAS

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page; its icons are data URLs in its style sheet."""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Polyglance API</title>
<link rel="icon" href="/favicon.svg">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<main id="swagger-ui"></main>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis],
  deepLinking: true,
  validatorUrl: null,
});
"""
_DESCRIPTION = """Every GET is answered for HEAD, too. Errors are `{"error": "one sentence"}`.

With an access token, requests carry it as `Authorization: Bearer TOKEN`."""


def operation_id(route: APIRoute) -> str:
    """Return the name of an endpoint's function, which generated clients use."""
    return route.name


def add_documentation(app: FastAPI, *, protected: bool) -> None:
    """Add the page /docs, and the security schemes to the OpenAPI document.

    Args:
        app: The application, with all its endpoints.
        protected: Whether requests need an access token.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=_DESCRIPTION,
                routes=app.routes,
            )
            document["components"]["schemas"] |= BODY_SCHEMAS
            document["components"]["securitySchemes"] = {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The access token that `polyglance serve` was started with.",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": "Set by the link that `polyglance serve` printed.",
                },
            }
            schemes: list[dict[str, list[str]]] = [{"token": []}, {"cookie": []}]
            document["security"] = schemes if protected else [*schemes, {}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    static = files("fastapi_offline") / "static"
    parts = {
        "/docs": ("text/html", _PAGE.encode()),
        "/docs/start.js": ("text/javascript", _START.encode()),
        "/docs/swagger-ui.css": ("text/css", (static / "swagger-ui.css").read_bytes()),
        "/docs/swagger-ui-bundle.js": (
            "text/javascript",
            (static / "swagger-ui-bundle.js").read_bytes(),
        ),
    }
    for path, (media_type, content) in parts.items():
        _serve(app, path, media_type, content)


def _serve(app: FastAPI, path: str, media_type: str, content: bytes) -> None:
    etag = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": POLICY,
        "etag": etag,
    }

    @app.get(path, include_in_schema=False)
    async def send(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)
