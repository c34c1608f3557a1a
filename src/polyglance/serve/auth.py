"""Access control and security headers.

Without an access token the server listens on this machine only. A foreign web page could still
reach it through the browser, by a link, an image address or a host name that resolves to
127.0.0.1 (DNS rebinding). So the ``Host`` header must name this machine, and the ``Origin`` and
``Sec-Fetch-*`` headers must name this page. With a token, every request must carry it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyglance.serve.errors import HTTPProblem, problem_response

log = logging.getLogger(__name__)

COOKIE = "polyglance"
COOKIE_SECONDS = 30 * 24 * 3600

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:;"
        " media-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none';"
        " form-action 'self'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Set on every response that does not set its own."""


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AuthMiddleware:
    """Check host, origin and access token; turn every exception into an error response."""

    def __init__(self, app: ASGIApp, *, token: str | None, loopback: bool) -> None:
        """Wrap an application.

        Args:
            app: The application to protect.
            token: The access token; None for no token.
            loopback: Whether the server listens on this machine only.
        """
        self._app, self._loopback = app, loopback
        self._token = None if token is None else token.encode()
        # The cookie is derived from the token and does not reveal it.
        self._cookie = hmac.new(self._token or b"", b"cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            response = self._authorize(scope)
            await (response or self._app)(scope, receive, send_with_headers)
        except HTTPProblem as problem:
            await problem_response(problem)(scope, receive, send_with_headers)
        except Exception:
            log.exception("a request failed")
            if started:
                raise
            internal = HTTPProblem(500, "Internal error: see the server's log.")
            await problem_response(internal)(scope, receive, send_with_headers)

    def _authorize(self, scope: Scope) -> Response | None:
        """Return a refusal or a redirect, or None for a request that may pass."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        _check_origin(scope, headers)
        if self._token is None:
            return None
        if scope["path"] == "/" and scope["method"] == "GET":
            params = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            tokens = [value for name, value in params if name == "token"]
            if tokens:
                return self._exchange_token(
                    tokens[0], [pair for pair in params if pair[0] != "token"]
                )
        if self._has_token(headers):
            return None
        detail = "This library is protected: open the link that `polyglance serve` printed."
        if scope["path"].startswith("/api/") or scope["path"] == "/openapi.json":
            raise HTTPProblem(401, detail, {"www-authenticate": "Bearer"})
        return PlainTextResponse(detail, 401, {"www-authenticate": "Bearer"})

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise HTTPProblem(400, "A request needs exactly one Host header.")
        if self._loopback and not is_loopback(_host_name(hosts[0])):
            raise HTTPProblem(
                403, "This library is open to this machine only: use http://localhost instead."
            )

    def _exchange_token(self, token: str, params: list[tuple[str, str]]) -> Response:
        """Set a cookie for the token of a link, and redirect to the address without it."""
        assert self._token is not None
        if not hmac.compare_digest(token.encode(), self._token):
            return PlainTextResponse("The access token in this link is wrong.", 401)
        response = RedirectResponse("/?" + urlencode(params) if params else "/", 303)
        response.set_cookie(COOKIE, self._cookie, COOKIE_SECONDS, httponly=True, samesite="lax")
        response.headers["cache-control"] = "no-store"
        return response

    def _has_token(self, headers: Headers) -> bool:
        assert self._token is not None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(token.strip().encode(), self._token)
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        value = cookie.value if cookie else ""
        return hmac.compare_digest(value.encode(), self._cookie.encode())


def _check_origin(scope: Scope, headers: Headers) -> None:
    """Refuse a request that the browser says comes from another site."""
    origin = headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != headers["host"]
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        # Other sites may link to the page itself.
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
        foreign = foreign or not is_link or scope["method"] != "GET"
    if foreign:
        raise HTTPProblem(403, "Other sites may not use this library.")


def _host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
