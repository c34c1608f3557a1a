"""Starting the service: on this machine only, or elsewhere with a token."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from urllib.parse import quote

import uvicorn

from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.closer_look import Answers, Explains
from polyglance.serve.doorkeeper import is_loopback

SHORTEST_TOKEN = 16
MOST_CONNECTIONS = 1000
"""Beyond, a connection is answered with 503 at once."""


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    token: str | None,
    explainer: Explains | None = None,
    answerer: Answers | None = None,
) -> None:
    """Answer until interrupted."""
    check_token(host, token)
    app = create_app(
        library,
        token=token,
        loopback=is_loopback(host),
        explainer=explainer,
        answerer=answerer,
    )
    app.state.service.shelf.warm_up()
    listening = _listen(host, port)
    print(f"Polyglance is at {link(host, listening.getsockname()[1], token)}", flush=True)
    config = uvicorn.Config(
        app,
        access_log=False,  # what people look for is theirs
        log_level="warning",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
        proxy_headers=False,
        lifespan="off",
    )
    with listening, suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])


def check_token(host: str, token: str | None) -> None:
    """Nobody listens to the world without a token, nor with one that can be guessed."""
    fresh = secrets.token_urlsafe(24)
    if token is None:
        if not is_loopback(host):
            raise PolyglanceError(
                f"on {host} others can reach the library, which takes a token: --token {fresh}"
            )
    elif len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise PolyglanceError(
            f"a token has {SHORTEST_TOKEN} or more plain characters, such as {fresh}"
        )


def link(host: str, port: int, token: str | None) -> str:
    """What opens the page in a browser."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        why = error.strerror or error
        raise PolyglanceError(f"cannot listen on {host}:{port} ({why}): try another --port") from (
            error
        )
    return listening
