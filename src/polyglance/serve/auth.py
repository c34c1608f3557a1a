"""Access control and security headers.

Without an access token the server listens on this machine only. A foreign web page could still
reach it through the browser, by a link, an image address or a host name that resolves to
127.0.0.1 (DNS rebinding). So the ``Host`` header must name this machine, and the ``Origin`` and
``Sec-Fetch-*`` headers must name this page. With a token, every request must carry it. Behind a
proxy, the public address (`polyglance.serve.proxies`) is this machine and this page as well.
"""

from __future__ import annotations

import ipaddress
import logging
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyglance.serve.errors import HTTPProblem, problem_response
from polyglance.serve.limits import CLIENT
from polyglance.serve.proxies import PublicUrl, TrustedProxies
from polyglance.serve.tokens import AccessTokens

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

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        loopback: bool,
        public_url: PublicUrl | None,
        proxies: TrustedProxies,
    ) -> None:
        """Wrap an application.

        Args:
            app: The application to protect.
            token: The access token; None for no token.
            loopback: Whether the server listens on this machine only.
            public_url: Address that browsers use, if it is that of a proxy.
            proxies: Proxies whose ``X-Forwarded-*`` headers are believed.
        """
        self._app, self._loopback = app, loopback
        self._tokens = None if token is None else AccessTokens(token)
        self._public_url, self._proxies = public_url, proxies

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
        except ClientDisconnect:
            pass  # nobody is there to answer
        except Exception:
            log.exception("a request failed")
            if started:
                raise
            internal = HTTPProblem(500, "Internal error: see the server's log.")
            await problem_response(internal)(scope, receive, send_with_headers)

    def _authorize(self, scope: Scope) -> Response | None:
        """Return a refusal or a redirect, or None for a request that may pass."""
        headers = Headers(scope=scope)
        client = self._proxies.client(scope, headers)
        CLIENT.set(client)
        self._check_host(headers)
        self._check_origin(scope, headers)
        if self._tokens is None:
            return None
        if scope["path"] == "/" and scope["method"] == "GET":
            params = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            tokens = [value for name, value in params if name == "token"]
            if tokens:
                if not self._tokens.check_token(tokens[0], client):
                    return PlainTextResponse("The access token in this link is wrong.", 401)
                params = [pair for pair in params if pair[0] != "token"]
                return self._set_cookie(self._tokens, scope, headers, params)
        if _has_access(self._tokens, headers, client):
            return None
        detail = "This library is protected: open the link that `polyglance serve` printed."
        if scope["path"].startswith("/api/") or scope["path"] == "/openapi.json":
            raise HTTPProblem(401, detail, {"www-authenticate": "Bearer"})
        return PlainTextResponse(detail, 401, {"www-authenticate": "Bearer"})

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise HTTPProblem(400, "A request needs exactly one Host header.")
        name = host_name(hosts[0])
        public = self._public_url is not None and name == self._public_url.host
        if self._loopback and not is_loopback(name) and not public:
            raise HTTPProblem(
                403,
                "This library is open to this machine only: use http://localhost instead, or name"
                " the address of a proxy by --public-url.",
            )

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request that the browser says comes from another site."""
        foreign = not self._is_own_origin(headers)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # Other sites may link to the page itself.
            is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
            foreign = foreign or not is_link or scope["method"] != "GET"
        if foreign:
            raise HTTPProblem(403, "Other sites may not use this library.")

    def _is_own_origin(self, headers: Headers) -> bool:
        origin, public = headers.get("origin"), self._public_url
        if origin is None or (public is not None and origin == public.origin):
            return True
        if public is not None and host_name(headers["host"]) == public.host:
            return False  # of this host, but another scheme or port
        scheme, separator, host = origin.partition("://")
        return scheme in ("http", "https") and bool(separator) and host == headers["host"]

    def _set_cookie(
        self, tokens: AccessTokens, scope: Scope, headers: Headers, params: list[tuple[str, str]]
    ) -> Response:
        """Exchange the token of a link for a cookie; redirect to the address without the token."""
        response = RedirectResponse("/?" + urlencode(params) if params else "/", 303)
        secure = self._public_url is not None and self._public_url.is_https
        response.set_cookie(
            COOKIE,
            tokens.issue_cookie(),
            COOKIE_SECONDS,
            httponly=True,
            samesite="lax",
            secure=secure or self._proxies.is_https(scope, headers),
        )
        response.headers["cache-control"] = "no-store"
        return response


def _has_access(tokens: AccessTokens, headers: Headers, client: str) -> bool:
    """Return whether a request carries the token, or a cookie that stands for it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return tokens.check_token(token.strip(), client)
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return False
    return cookie is not None and tokens.check_cookie(cookie.value, client)


def host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
