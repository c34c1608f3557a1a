"""Connections: idle, slow, too many, and responses that come before the request has ended."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from polyglance.serve.connections import ConnectionLimits, fit_file_limit
from polyglance.serve.limits import CLIENT
from polyglance.serve.proxies import TrustedProxies
from polyglance.serve.uploads import UploadLimits, UploadReceiver
from serve.conftest import running_server

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
TIMEOUT = 120
"""Seconds; only a connection that hangs takes this long."""
STREAM_BYTES = 200_000_000


class Server:
    """A server without a library, whose requests the test holds up and lets go."""

    def __init__(self, limits: ConnectionLimits, uploads: UploadLimits, *proxies: str) -> None:
        self.started, self.release = threading.Semaphore(0), threading.Event()
        self.stream_ended = threading.Event()
        self._limits, self._proxies = limits, TrustedProxies(proxies)
        self.app = FastAPI()
        receiver = UploadReceiver(uploads)

        @self.app.get("/")
        async def index() -> str:
            return "ok"

        @self.app.get("/held")
        def held() -> str:
            self.started.release()
            self.release.wait(TIMEOUT)
            return "ok"

        @self.app.post("/unread")
        async def unread(close: bool) -> Response:
            return Response("no", 413, {"connection": "close"} if close else {})

        @self.app.post("/upload")
        async def upload(request: Request) -> Response:
            assert request.client is not None
            CLIENT.set(request.client.host)
            self.started.release()
            try:
                async with receiver.body(request) as data:
                    return Response(str(len(data)))
            except Exception as error:  # answered by `AuthMiddleware` in the real application
                return Response(str(error), error.status, error.headers)  # type: ignore[attr-defined]

        @self.app.get("/stream")
        async def stream() -> Response:
            async def chunks() -> AsyncIterator[bytes]:
                try:
                    for _ in range(STREAM_BYTES // 1_000_000):
                        yield bytes(1_000_000)
                finally:
                    self.stream_ended.set()

            return StreamingResponse(chunks())

    @contextmanager
    def running(self) -> Iterator[Server]:
        with running_server(self.app, self._limits, self._proxies) as url:
            self.address = (urlsplit(url).hostname, urlsplit(url).port)
            yield self
            self.release.set()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Open a connection from one of this machine's addresses."""
        return socket.create_connection(self.address, TIMEOUT, (source, 0))

    def status(self, source: str = "127.0.0.1", request: bytes = GET) -> int:
        """Return the status of a request on a connection of its own."""
        with self.connect(source) as connection:
            connection.sendall(request)
            return status_of(connection)


@contextmanager
def serving(
    *proxies: str, uploads: UploadLimits | None = None, **limits: float
) -> Iterator[Server]:
    settings = ConnectionLimits(**limits)  # type: ignore[arg-type]
    with Server(settings, uploads or UploadLimits(), *proxies).running() as server:
        yield server


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(1 << 20):
        received += part
    return received


def send_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(100_000))


def status_of(connection: socket.socket) -> int:
    """Read the status line, and 0 if the server closes without one."""
    line = connection.makefile("rb").readline()
    return int(line.split()[1]) if line else 0


def is_open(connection: socket.socket) -> bool:
    """Return whether a connection still answers."""
    try:
        connection.sendall(GET)
        return status_of(connection) == 200
    except OSError:
        return False


def test_idle_connections_keep_nobody_out() -> None:
    with serving(max_connections=30, max_per_client=20) as server, ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(60)]
        assert server.status() == 200
        assert server.status("127.0.0.2") == 200
        # Those that have been idle longest gave way.
        assert [is_open(connection) for connection in (idle[0], idle[-1])] == [False, True]


def test_connections_over_a_clients_limit_are_closed_when_they_have_been_idle() -> None:
    with serving(max_per_client=20, grace_seconds=3600) as server, ExitStack() as stack:
        at_once = [stack.enter_context(server.connect()) for _ in range(40)]
        assert all(is_open(connection) for connection in at_once)
    with serving(max_per_client=20, grace_seconds=0) as server, ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(40)]
        assert server.status() == 200
        assert [is_open(idle[i]) for i in (0, 19, 39)] == [False, False, True]


def test_idle_connections_of_many_addresses_keep_nobody_out() -> None:
    with serving(max_connections=20, max_per_client=15) as server, ExitStack() as stack:
        for number in range(60):
            stack.enter_context(server.connect(f"127.0.1.{1 + number % 20}"))
        assert server.status() == 200


def test_connections_in_use_are_kept_and_one_too_many_gets_503() -> None:
    with serving(max_connections=8, max_per_client=2) as server, ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(2)]
        for connection in busy:
            connection.sendall(GET.replace(b"/ ", b"/held "))
            server.started.acquire()
        with server.connect() as refused:
            response = read_to_end(refused)
        assert response.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2" in response
        assert server.status("127.0.0.2") == 200  # other clients have their own limit
        server.release.set()
        assert [status_of(connection) for connection in busy] == [200, 200]


def test_a_trusted_proxy_may_take_more_connections_than_a_client() -> None:
    with serving("127.0.0.1", max_connections=8, max_per_client=2) as server, ExitStack() as stack:
        for _ in range(4):
            connection = stack.enter_context(server.connect())
            connection.sendall(GET.replace(b"/ ", b"/held "))
            server.started.acquire()
        assert server.status() == 200


def test_a_connection_without_a_request_is_closed() -> None:
    with serving(header_seconds=0.1) as server, server.connect() as connection:
        assert connection.recv(1) == b""


@pytest.mark.parametrize("first", [b"", GET])
def test_a_request_that_does_not_end_is_refused(first: bytes) -> None:
    with serving(header_seconds=0.1) as server, server.connect() as connection:
        connection.sendall(first + b"GET / HTTP/1.1\r\nhost: local")
        assert b"HTTP/1.1 408 " in read_to_end(connection)


def post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("close", [True, False])
def test_a_response_before_the_end_of_the_body_arrives(close: bool) -> None:
    size = 30_000_000
    with serving() as server:
        for _ in range(3):  # a reset does not always come in time to lose the response
            with server.connect() as connection:
                connection.sendall(post(f"/unread?close={close}", size))
                for _ in range(size // 1_000_000):
                    connection.sendall(bytes(1_000_000))
                assert status_of(connection) == 413


def test_a_malformed_request_with_a_long_body_gets_its_400() -> None:
    with serving() as server, server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n")
        for _ in range(10):
            connection.sendall(bytes(1_000_000))
        assert status_of(connection) == 400


@pytest.mark.parametrize("close", [True, False])
def test_a_body_that_never_ends_is_cut_off(close: bool) -> None:
    with serving(linger_seconds=0.2) as server, server.connect() as connection:
        connection.sendall(post(f"/unread?close={close}", 10**15))
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            send_without_end(connection)


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    with serving(stall_seconds=0.2) as server, server.connect() as connection:
        connection.sendall(GET.replace(b"/ ", b"/stream "))
        assert server.stream_ended.wait(TIMEOUT)
        assert len(read_to_end(connection)) < STREAM_BYTES


def test_a_slow_upload_is_cut_off() -> None:
    limits = UploadLimits(grace_seconds=0.1, min_bytes_per_second=1_000_000)
    with serving(uploads=limits) as server:
        assert server.status(request=post("/upload", 100) + b"a") == 408
        assert server.status(request=post("/upload", 3) + b"abc") == 200


def test_slow_uploads_of_one_client_do_not_delay_those_of_others() -> None:
    limits = UploadLimits(grace_seconds=3600, seconds=3600, max_per_client=2)
    with serving(uploads=limits) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(4)]
        for connection in slow:
            connection.sendall(post("/upload", 2) + b"a")
            server.started.acquire()
        assert server.status(request=post("/upload", 1) + b"a") == 503  # two run and two wait
        assert server.status("127.0.0.2", post("/upload", 1) + b"a") == 200
        for connection in slow:
            connection.sendall(b"b")
        assert [status_of(connection) for connection in slow] == [200] * 4


def test_uploads_in_memory_are_bounded_for_each_client() -> None:
    limits = UploadLimits(max_buffered_per_client=1000, max_buffered=1500)
    with serving(uploads=limits) as server, server.connect() as held:
        held.sendall(post("/upload", 901) + bytes(900))
        server.started.acquire()
        # The server has read the first upload when it answers the second.
        assert server.status(request=post("/upload", 200) + bytes(200)) in (200, 503)
        assert server.status(request=post("/upload", 200) + bytes(200)) == 503
        assert server.status("127.0.0.2", post("/upload", 200) + bytes(200)) == 200
        assert server.status("127.0.0.2", post("/upload", 700) + bytes(700)) == 503
        held.sendall(b"a")
        assert status_of(held) == 200
        assert server.status(request=post("/upload", 1000) + bytes(1000)) == 200


def test_limits_fit_the_files_that_the_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [1024, 8192]

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        files[:] = limits

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(files))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert fit_file_limit(ConnectionLimits(max_connections=1000)).max_connections == 1000
    assert files[0] > 2000
    files[:] = [600, 600]
    fitted = fit_file_limit(ConnectionLimits())
    assert 2 * fitted.max_connections < 600
    assert fitted.max_per_client < fitted.max_connections
