"""Files over HTTP, whole or in part: what a player asks for to jump to a second (RFC 9110, 14)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import BinaryIO

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from polyglance.serve.problems import Refused

CHUNK = 256 * 1024
"""Bytes of a file in memory at a time, for each that reads it."""

MEDIA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""For whoever opens a file by its own address: nothing in it may run."""

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def stream(file: BinaryIO, size: int, tag: str, media_type: str, headers: Headers) -> Response:
    """An opened file, or the part of it that is asked for; it is closed at the end."""
    told = {
        "accept-ranges": "bytes",
        "cache-control": "private, no-cache",
        "content-security-policy": MEDIA_POLICY,
        "etag": f'"{tag}"',
    }
    if told["etag"] in headers.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers=told)
    asked = headers.get("range")
    # Of a file that changed since, a part would not fit the others.
    if asked is not None and headers.get("if-range", told["etag"]) != told["etag"]:
        asked = None
    try:
        part = None if asked is None else byte_range(asked, size)
    except Refused:
        file.close()
        raise
    start, stop = part or (0, size)
    told["content-length"] = str(stop - start)
    if part:
        told["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    return StreamingResponse(
        _chunks(file, start, stop), 206 if part else 200, told, media_type=media_type
    )


def byte_range(asked: str, size: int) -> tuple[int, int] | None:
    """From where to where of a file; None for the whole, as for what is not understood."""
    matched = _RANGE.fullmatch(asked.strip())
    if not matched or matched.groups() == ("", ""):
        return None
    first, last = matched.groups()
    if first == "":
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), size if last == "" else min(size, int(last) + 1)
        if last and int(last) < start:
            return None
    if start >= stop:
        raise Refused(
            416, f"The file has only {size:,} bytes.", {"content-range": f"bytes */{size}"}
        )
    return start, stop


async def _chunks(file: BinaryIO, start: int, stop: int) -> AsyncIterator[bytes]:
    try:
        await anyio.to_thread.run_sync(file.seek, start)
        while start < stop:
            chunk = await anyio.to_thread.run_sync(file.read, min(CHUNK, stop - start))
            if not chunk:  # the file was cut short meanwhile
                return
            start += len(chunk)
            yield chunk
    finally:
        file.close()
