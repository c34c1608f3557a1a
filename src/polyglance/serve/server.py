"""Start the server: on this machine only, or elsewhere with an access token."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.auth import is_loopback
from polyglance.serve.connections import ConnectionLimits, fit_file_limit, http_protocol
from polyglance.serve.explain import SupportsAnswer, SupportsExplain
from polyglance.serve.proxies import PublicUrl, TrustedProxies
from polyglance.serve.service import Service
from polyglance.serve.tokens import check_strength

MAX_PENDING = 1024
"""Connections that wait for being accepted."""
ACCEPTED_AT_ONCE = 8
"""Connections that are accepted before the next look at requests: a few milliseconds' work."""
SWITCH_SECONDS = 0.0005
"""After which a Python thread lets others run. A search needs the interpreter several times, and
waited up to Python's default of 5 ms each time while two hundred requests arrived."""


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    token: str | None,
    public_url: str | None = None,
    trusted_proxies: Sequence[str] = (),
    explainer: SupportsExplain | None = None,
    answerer: SupportsAnswer | None = None,
    manage_folders: bool = True,
    watch: bool = True,
) -> None:
    """Serve a library until interrupted.

    Args:
        library: The library to search.
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        token: Access token; required unless only this machine can reach the server.
        public_url: Address that browsers use, if it is that of a proxy.
        trusted_proxies: Addresses and networks whose ``X-Forwarded-*`` headers are believed.
        explainer: Model that explains hits.
        answerer: Model that answers questions about pictures.
        manage_folders: Whether folders can be added from the page, on this machine.
        watch: Whether to index new files of the library's folders; only where folders can be
            added.
    """
    public = None if public_url is None else PublicUrl.parse(public_url)
    proxies = TrustedProxies(trusted_proxies)
    check_token(host, token, public)
    app = create_app(
        library,
        token=token,
        loopback=is_loopback(host),
        public_url=public,
        proxies=proxies,
        explainer=explainer,
        answerer=answerer,
        manage_folders=manage_folders,
    )
    service: Service = app.state.service
    service.catalog.warm_up()
    server_socket = _bind(host, port)
    url = page_url(host, server_socket.getsockname()[1], token, public)
    print(f"Polyglance is at {url}", flush=True)
    config = server_config(app, fit_file_limit(ConnectionLimits()), proxies)
    sys.setswitchinterval(SWITCH_SECONDS)
    if watch and service.local.enabled:
        service.watcher.start()
    with server_socket, suppress(KeyboardInterrupt), closing(service):
        Server(config).run([server_socket])


class Server(uvicorn.Server):
    """uvicorn's server, which goes on answering while many connections come at once."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        # asyncio accepts as many connections in one go as the queue is long: a short queue lets
        # it answer requests in between, and the kernel may have a longer one.
        for server_socket in sockets or ():
            server_socket.listen(MAX_PENDING)


def server_config(
    app: FastAPI, limits: ConnectionLimits, proxies: TrustedProxies | None = None
) -> uvicorn.Config:
    """Return uvicorn's settings.

    Args:
        app: The application of `create_app`.
        limits: Limits on connections.
        proxies: Proxies, which may take more connections than other clients.
    """
    return uvicorn.Config(
        app,
        http=http_protocol(limits, proxies or TrustedProxies()),
        access_log=False,  # queries are private
        log_level="error",  # a warning a malformed request would fill the log
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
        proxy_headers=False,  # the application reads them, from trusted proxies only
        lifespan="off",
    )


def check_token(host: str, token: str | None, public_url: PublicUrl | None = None) -> None:
    """Raise an error unless only this machine can reach the server, or the token is strong.

    Args:
        host: Address to listen on.
        token: The access token, if there is one.
        public_url: Address of a proxy, through which others reach the server on this machine.
    """
    if token is not None:
        check_strength(token)
    elif public_url is not None or not is_loopback(host):
        raise PolyglanceError(
            f"others can reach the library on {host if public_url is None else public_url.netloc},"
            f" so it needs an access token: --token {secrets.token_urlsafe(24)}"
        )


def page_url(host: str, port: int, token: str | None, public_url: PublicUrl | None = None) -> str:
    """Return the address that opens the page in a browser.

    Args:
        host: Address that the server listens on.
        port: Port that it listens on.
        token: The access token, if there is one.
        public_url: Address of a proxy, if there is one.
    """
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    origin = f"http://{name}:{port}" if public_url is None else public_url.origin
    return f"{origin}/" + (f"?token={quote(token, safe='')}" if token else "")


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server_socket = socket.socket(family, kind, protocol)
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind(address)
        server_socket.listen(MAX_PENDING)
    except OSError as error:
        reason = error.strerror or error
        raise PolyglanceError(
            f"cannot listen on {host}:{port} ({reason}): try another --port"
        ) from error
    return server_socket
