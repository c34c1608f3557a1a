"""Receive uploads: limits on size, speed, and what one client may have under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from starlette.requests import Request

from polyglance.serve.errors import HTTPProblem
from polyglance.serve.limits import CLIENT, ConcurrencyLimiter, Overloaded
from polyglance.vision.uploads import MAX_BYTES

_CLOSE = {"connection": "close"}
"""The rest of the body is not wanted."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What uploads may take."""

    max_bytes: int = MAX_BYTES
    seconds: float = 60.0
    """Until an upload has arrived."""
    grace_seconds: float = 5.0
    """Before the minimum speed counts."""
    min_bytes_per_second: int = 16_000
    """On average since the beginning."""
    max_per_client: int = 16
    """Uploads that arrive at once from one client; four times as many from all."""
    max_buffered: int = 100_000_000
    """Bytes in memory of all uploads."""
    max_buffered_per_client: int = 40_000_000

    def up_to(self, max_bytes: int) -> UploadLimits:
        """Return the same limits for bodies of at most this size."""
        return replace(self, max_bytes=min(max_bytes, self.max_bytes))


class UploadReceiver:
    """Bodies of requests, held in memory while they are needed."""

    def __init__(self, limits: UploadLimits) -> None:
        self._limits = limits
        self._limiter = ConcurrencyLimiter(
            4 * limits.max_per_client,
            max_waiting=limits.max_per_client,
            per_client=limits.max_per_client,
        )
        self._buffered: Counter[str] = Counter()

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytearray]:
        """Receive a request's body, and count its bytes until the caller is done with them."""
        content_length = request.headers.get("content-length", "")
        if content_length.isdecimal() and int(content_length) > self._limits.max_bytes:
            raise self._too_large
        client, received = CLIENT.get(), bytearray()
        try:
            async with self._limiter.slot():
                await self._receive(request, client, received)
            yield received
        finally:
            self._buffered[client] -= len(received)
            if not self._buffered[client]:
                del self._buffered[client]

    @property
    def _too_large(self) -> HTTPProblem:
        detail = f"The file has more than the {self._limits.max_bytes:,} bytes allowed."
        return HTTPProblem(413, detail, _CLOSE)

    async def _receive(self, request: Request, client: str, received: bytearray) -> None:
        """Append a body as it arrives; raise 408 if that takes too long, 413 if it is too long."""
        limits = self._limits
        start = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(start + limits.grace_seconds) as deadline:
                async for chunk in request.stream():
                    received += chunk
                    self._buffered[client] += len(chunk)
                    if len(received) > limits.max_bytes:
                        raise self._too_large
                    if (
                        self._buffered[client] > limits.max_buffered_per_client
                        or self._buffered.total() > limits.max_buffered
                    ):
                        raise Overloaded
                    earned = limits.grace_seconds + len(received) / limits.min_bytes_per_second
                    deadline.reschedule(start + min(limits.seconds, earned))
        except TimeoutError:
            raise HTTPProblem(408, "The file took too long to arrive.", _CLOSE) from None
