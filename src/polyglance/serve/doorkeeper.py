"""Who may come in, and what a browser may do with what it gets.

Without a token only this machine is listened to. Then a page from elsewhere could still
send a browser here, by a link, a picture's address or a name that leads to 127.0.0.1
(DNS rebinding): so the ``Host`` must be one of this machine's own, and what browsers say
of a request's origin must be this page. With a token every request must show it.
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

from polyglance.serve.problems import Refused, refusal

log = logging.getLogger(__name__)

COOKIE = "polyglance"
COOKIE_SECONDS = 30 * 24 * 3600

HEADERS = {
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
"""On every answer; one may bring a stricter policy of its own."""


def is_loopback(host: str) -> bool:
    """Whether a name or number is this machine's own, and reached from nowhere else."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Doorkeeper:
    """Stands before an application; whatever it raises becomes a sentence, too."""

    def __init__(self, app: ASGIApp, *, token: str | None, loopback: bool) -> None:
        """``loopback``: it is listened on this machine only."""
        self._app, self._loopback = app, loopback
        self._token = None if token is None else token.encode()
        # What a browser keeps is made from the token and does not tell it.
        self._pass = hmac.new(self._token or b"", b"cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            answer = self._judge(scope)
            await (answer or self._app)(scope, receive, guarded)
        except Refused as refused:
            await refusal(refused)(scope, receive, guarded)
        except Exception:
            log.exception("a request could not be answered")
            if started:
                raise
            sentence = "Something went wrong here: the reason is in the server's log."
            await refusal(Refused(500, sentence))(scope, receive, guarded)

    def _judge(self, scope: Scope) -> Response | None:
        """An answer that keeps somebody out or sends them on, or None for those who may enter."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        _check_origin(scope, headers)
        if self._token is None:
            return None
        if scope["path"] == "/" and scope["method"] == "GET":
            asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = [value for name, value in asked if name == "token"]
            if given:
                return self._admit(given[0], [pair for pair in asked if pair[0] != "token"])
        if self._shows_token(headers):
            return None
        sentence = "This library is protected: open the link that `polyglance serve` printed."
        if scope["path"].startswith("/api/") or scope["path"] == "/openapi.json":
            raise Refused(401, sentence, {"www-authenticate": "Bearer"})
        return PlainTextResponse(sentence, 401, {"www-authenticate": "Bearer"})

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise Refused(400, "A request names one host.")
        if self._loopback and not is_loopback(_host_name(hosts[0])):
            raise Refused(
                403, "This library is open to this machine only: use http://localhost instead."
            )

    def _admit(self, given: str, rest: list[tuple[str, str]]) -> Response:
        """Exchange the token of a link for a cookie, so that it stays in no address bar."""
        assert self._token is not None
        if not hmac.compare_digest(given.encode(), self._token):
            return PlainTextResponse("The token of this link is not the right one.", 401)
        answer = RedirectResponse("/?" + urlencode(rest) if rest else "/", 303)
        answer.set_cookie(COOKIE, self._pass, COOKIE_SECONDS, httponly=True, samesite="lax")
        answer.headers["cache-control"] = "no-store"
        return answer

    def _shows_token(self, headers: Headers) -> bool:
        assert self._token is not None
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(shown.strip().encode(), self._token)
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        value = cookie.value if cookie else ""
        return hmac.compare_digest(value.encode(), self._pass.encode())


def _check_origin(scope: Scope, headers: Headers) -> None:
    """Whether a request comes from this page, as far as a browser says where it comes from."""
    origin = headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != headers["host"]
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        # A link from elsewhere to the page itself is welcome.
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
        foreign = foreign or not is_link or scope["method"] != "GET"
    if foreign:
        raise Refused(403, "Other sites may not use this library.")


def _host_name(host: str) -> str:
    """The name in a ``Host`` header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
