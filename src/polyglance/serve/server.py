"""Start the server: on this machine only, or elsewhere with an access token."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from urllib.parse import quote

import uvicorn

from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.auth import is_loopback
from polyglance.serve.explain import SupportsAnswer, SupportsExplain

MIN_TOKEN_CHARS = 16
MAX_CONNECTIONS = 1000
"""Further connections get 503 at once."""


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    token: str | None,
    explainer: SupportsExplain | None = None,
    answerer: SupportsAnswer | None = None,
) -> None:
    """Serve a library until interrupted.

    Args:
        library: The library to search.
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        token: Access token; required unless ``host`` is this machine.
        explainer: Model that explains hits.
        answerer: Model that answers questions about pictures.
    """
    check_token(host, token)
    app = create_app(
        library,
        token=token,
        loopback=is_loopback(host),
        explainer=explainer,
        answerer=answerer,
    )
    app.state.service.catalog.warm_up()
    server_socket = _bind(host, port)
    print(f"Polyglance is at {page_url(host, server_socket.getsockname()[1], token)}", flush=True)
    config = uvicorn.Config(
        app,
        access_log=False,  # queries are private
        log_level="warning",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
        proxy_headers=False,
        lifespan="off",
    )
    with server_socket, suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([server_socket])


def check_token(host: str, token: str | None) -> None:
    """Raise an error unless the host is this machine or the access token is strong enough."""
    suggestion = secrets.token_urlsafe(24)
    if token is None:
        if not is_loopback(host):
            raise PolyglanceError(
                f"others can reach the library on {host}, so it needs an access token:"
                f" --token {suggestion}"
            )
    elif len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise PolyglanceError(
            f"an access token needs at least {MIN_TOKEN_CHARS} printable ASCII characters,"
            f" such as {suggestion}"
        )


def page_url(host: str, port: int, token: str | None) -> str:
    """Return the address that opens the page in a browser."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server_socket = socket.socket(family, kind, protocol)
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind(address)
        server_socket.listen(1024)
    except OSError as error:
        reason = error.strerror or error
        raise PolyglanceError(
            f"cannot listen on {host}:{port} ({reason}): try another --port"
        ) from error
    return server_socket
