"""Answer HEAD wherever GET is answered: the same headers without a body (RFC 9110, 9.3.2)."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FLAG = "polyglance.head"


def is_head(scope: Scope) -> bool:
    """Return whether a request is HEAD, and so needs no body."""
    return bool(scope.get(_FLAG))


class HeadMiddleware:
    """Let endpoints answer HEAD as they answer GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and leave out the body of the answer to HEAD."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET", _FLAG: True}, receive, send_without_body)
