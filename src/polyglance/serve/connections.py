"""Limits on connections, before and around the requests that they carry.

uvicorn bounds the pause between two requests, but neither the time before the first request nor
the time that a request's head takes, and it counts connections without asking whose they are. So a
thousand idle connections would shut everybody out. Here every connection belongs to a client
address with a limit of its own; where a limit is reached, the connections that have been idle
longest make room, so that idle ones never keep a new client out.

A response that is sent before the request's body has arrived (413, 503, 408) would be lost: closing
a socket with unread data resets the connection, and the client drops what it had received. Such
connections are closed for writing, and read until the client has noticed (RFC 9112, 9.6).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyglance.serve.proxies import TrustedProxies, client_group

_BUSY = b'{"error":"Too many connections: try again in a moment."}'
_LATE = b'{"error":"The request took too long to arrive."}'
_MAX_REFUSED = 100
"""Refused clients that are waited for at once; further ones are cut off without a response."""
_OTHER_FILES = 200
"""Files that the process opens beside its connections: the library, models, decoder processes."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each phase of one may take."""

    max_connections: int = 2000
    max_per_client: int = 256
    """Connections of one client address; trusted proxies may take all."""
    grace_seconds: float = 2.0
    """In which a new connection, or one after a response, does not count as idle if others do."""
    header_seconds: float = 10.0
    """Until the head of a request is complete: from the connection's begin, or its first byte."""
    keep_alive_seconds: int = 30
    """Between two requests."""
    linger_seconds: float = 30.0
    """Reading on after a response that was sent before the request's end."""
    linger_pause_seconds: float = 5.0
    """Silence that ends such reading."""
    stall_seconds: float = 60.0
    """Without the client having read anything of a response."""


class _Client:
    """The connections of one client, and which of them are idle, idle longest first."""

    def __init__(self) -> None:
        self.connections: set[GuardedProtocol] = set()
        self.idle: OrderedDict[GuardedProtocol, None] = OrderedDict()


class ConnectionRegistry:
    """The open connections by client."""

    def __init__(self, limits: ConnectionLimits, proxies: TrustedProxies) -> None:
        self.limits, self.proxies = limits, proxies
        self._clients: dict[str, _Client] = {}
        self._count = self.refused = 0

    def admit(self, connection: GuardedProtocol) -> bool:
        """Count a new connection, closing idle ones at the limits; False where none is idle.

        A client's limit may be exceeded for the time of grace: among many connections that come
        at once, some are about to send a request.
        """
        address = connection.client[0] if connection.client else ""
        name = connection.client_group = client_group(address)
        client = self._clients.get(name, _Client())
        excess = 1 + len(client.connections) - self.limits.max_per_client
        if excess > 0 and address not in self.proxies:
            if not client.idle:
                return False
            # Two for one brings those that came at once back to the limit.
            for _ in range(min(excess, 2)):
                self._close_idle(client, connection.last_active - self.limits.grace_seconds)
        if self._count >= self.limits.max_connections:
            # Whoever holds most gives way first.
            clients = sorted(self._clients.values(), key=lambda one: -len(one.connections))
            if not any(self._close_idle(one, connection.last_active) for one in clients):
                return False
        client = self._clients.setdefault(name, client)
        client.connections.add(connection)
        client.idle[connection] = None
        self._count += 1
        return True

    def update(self, connection: GuardedProtocol) -> None:
        """Note whether a connection is idle now."""
        client = self._clients.get(connection.client_group)
        if client is None or connection not in client.connections:
            return
        if not connection.is_idle:
            client.idle.pop(connection, None)
        elif connection not in client.idle:
            client.idle[connection] = None

    def discard(self, connection: GuardedProtocol) -> None:
        """Forget a connection that is closed."""
        client = self._clients.get(connection.client_group)
        if client is None or connection not in client.connections:
            return
        client.connections.discard(connection)
        client.idle.pop(connection, None)
        self._count -= 1
        if not client.connections:
            del self._clients[connection.client_group]

    def _close_idle(self, client: _Client, before: float) -> bool:
        """Close a client's connection that has been idle longest; return whether there is one."""
        oldest = next(iter(client.idle), None)
        if oldest is None or oldest.last_active > before:
            return False
        self.discard(oldest)
        oldest.abort()
        return True


class _LingeringTransport:
    """A transport whose ``close`` asks the protocol first."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport, self.close = transport, close
        self.closing = False

    def is_closing(self) -> bool:
        """Return whether it is closed for writing, or wholly."""
        return self.closing or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with limits; `http_protocol` binds it to a registry."""

    registry: ClassVar[ConnectionRegistry]
    client_group = ""
    last_active = 0.0
    """When it was opened, or its last response was complete."""

    _phase: Literal["head", "drain", "linger"] | None = None
    _phase_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _linger_end = 0.0
    _lost = _refused = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.disconnected

    def abort(self) -> None:
        """Close at once, and drop what was not sent."""
        self._raw.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a connection, or refuse it with 503."""
        self._raw, self._guarded = transport, _LingeringTransport(transport, self._close)
        self.last_active = self.loop.time()
        super().connection_made(cast(asyncio.Transport, self._guarded))
        if self.registry.admit(self):
            self._enter("head", self.registry.limits.header_seconds, self._head_is_late)
        elif self.registry.refused >= _MAX_REFUSED:
            self.abort()
        else:
            self._refused = True
            self.registry.refused += 1
            self._refuse(b"503 Service Unavailable\r\nretry-after: 2", _BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._lost = True
        self._enter(None)
        self._stop_stall_timer()
        self.registry.discard(self)
        self.registry.refused -= self._refused
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, or skip what comes after an early response."""
        if self._phase == "linger":
            self._linger_on()
            return
        super().data_received(data)
        self.registry.update(self)
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            self._enter("head", self.registry.limits.header_seconds, self._head_is_late)
        elif not self._is_draining:
            self._enter(None)

    def on_response_complete(self) -> None:
        """Wait for the next request, or skip the rest of this one's body for a limited time."""
        self.last_active = self.loop.time()
        super().on_response_complete()
        self.registry.update(self)
        if self.transport.is_closing():
            return
        if self._is_draining:
            self._enter("drain", self.registry.limits.linger_seconds, self.abort)
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._enter("head", self.registry.limits.header_seconds, self._head_is_late)

    def shutdown(self) -> None:
        """Close because the server stops."""
        if self._phase == "linger":
            self.abort()
            return
        with suppress(h11.LocalProtocolError):  # from a request that is only half there
            super().shutdown()
        if self.is_idle:
            self._raw.close()

    def pause_writing(self) -> None:
        """Watch a client that does not read."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """Stop watching a client that reads."""
        super().resume_writing()
        self._stop_stall_timer()

    @property
    def _is_draining(self) -> bool:
        """Whether the response is complete and the request's body is not."""
        return self.is_idle and self.conn.their_state is h11.SEND_BODY

    def _enter(
        self,
        phase: Literal["head", "drain", "linger"] | None,
        seconds: float = 0.0,
        too_late: Callable[[], None] | None = None,
    ) -> None:
        """Enter a phase that may take some seconds; the timer of the same phase runs on."""
        if phase == self._phase:
            return
        if self._phase_timer is not None:
            self._phase_timer.cancel()
        self._phase = phase
        self._phase_timer = None if too_late is None else self.loop.call_later(seconds, too_late)

    def _head_is_late(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(b"408 Request Timeout", _LATE)
        else:
            self._raw.close()

    def _refuse(self, status: bytes, body: bytes) -> None:
        """Respond without a request, and close."""
        length = str(len(body)).encode()
        self._raw.write(
            b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: "
            + length + b"\r\nconnection: close\r\n\r\n" + body
        )  # fmt: skip
        self._linger()

    def _close(self) -> None:
        """Close the transport; linger where the client may still be sending."""
        if not self._lost and self.conn.their_state in (h11.SEND_BODY, h11.ERROR):
            self._linger()
            return
        self._raw.close()
        if self._raw.get_write_buffer_size() and self._stall_timer is None and not self._lost:
            self._watch_stall()

    def _linger(self) -> None:
        """Close for writing, and read until the client closes or the time is over."""
        if self._guarded.is_closing():
            return
        self._guarded.closing = True
        self._unset_keepalive_if_required()
        limits = self.registry.limits
        self._linger_end = self.loop.time() + limits.linger_seconds
        with suppress(OSError):  # the client is already gone
            self._raw.write_eof()
        self.flow.resume_reading()
        self._enter("linger", limits.linger_pause_seconds, self.abort)

    def _linger_on(self) -> None:
        """Wait for the client again, who is still sending."""
        assert self._phase_timer is not None
        self._phase_timer.cancel()
        pause = self.registry.limits.linger_pause_seconds
        end = min(self.loop.time() + pause, self._linger_end)
        self._phase_timer = self.loop.call_at(end, self.abort)

    def _watch_stall(self) -> None:
        self._stop_stall_timer()
        size = self._raw.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(
            self.registry.limits.stall_seconds, self._check_stall, size
        )

    def _check_stall(self, size: int) -> None:
        """Cut off a client that has read nothing since there were ``size`` bytes to send."""
        self._stall_timer = None
        left = self._raw.get_write_buffer_size()
        if left >= size:
            self.abort()
        elif left:
            self._watch_stall()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def http_protocol(limits: ConnectionLimits, proxies: TrustedProxies) -> type[GuardedProtocol]:
    """Return the protocol class of one server, with a registry of its connections."""
    registry = ConnectionRegistry(limits, proxies)
    return type("LimitedProtocol", (GuardedProtocol,), {"registry": registry})


def fit_file_limit(limits: ConnectionLimits) -> ConnectionLimits:
    """Raise this process's limit of open files as far as needed, or lower the limits to fit it.

    A connection takes a file, and so does what it streams.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * limits.max_connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    fitting = max(16, (soft - _OTHER_FILES) // 2)
    return replace(
        limits,
        max_connections=min(limits.max_connections, fitting),
        max_per_client=min(limits.max_per_client, max(8, fitting // 2)),
    )
