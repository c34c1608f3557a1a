"""Files over HTTP, whole or in byte ranges, which players need for seeking (RFC 9110, 14)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import BinaryIO

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from polyglance.serve.errors import HTTPProblem

CHUNK_BYTES = 256 * 1024
"""Bytes read at a time, per client."""

MEDIA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""Content-Security-Policy of files: nothing in them may run if they are opened directly."""

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def stream(
    file: BinaryIO,
    size: int,
    etag: str,
    media_type: str,
    headers: Headers,
    *,
    head: bool = False,
) -> Response:
    """Return the response that sends an open file and closes it at the end.

    Args:
        file: The open file.
        size: Its size in bytes.
        etag: Tag of its version, without quotes.
        media_type: Its content type.
        headers: The request's headers, which may ask for a range or name a cached version.
        head: Send the headers alone.
    """
    response_headers = {
        "accept-ranges": "bytes",
        "cache-control": "private, no-cache",
        "content-security-policy": MEDIA_POLICY,
        "etag": f'"{etag}"',
    }
    if response_headers["etag"] in headers.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers=response_headers)
    range_header = headers.get("range")
    # A range of a newer version would not fit the parts that the client has.
    if headers.get("if-range", response_headers["etag"]) != response_headers["etag"]:
        range_header = None
    try:
        part = None if range_header is None else byte_range(range_header, size)
    except HTTPProblem:
        file.close()
        raise
    start, stop = part or (0, size)
    response_headers["content-length"] = str(stop - start)
    if part:
        response_headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    if head:
        file.close()
        status = 206 if part else 200
        return Response(status_code=status, headers=response_headers, media_type=media_type)
    return StreamingResponse(
        _chunks(file, start, stop), 206 if part else 200, response_headers, media_type=media_type
    )


def byte_range(range_header: str, size: int) -> tuple[int, int] | None:
    """Parse a ``Range`` header into start and stop; None for one that must be ignored."""
    matched = _RANGE.fullmatch(range_header.strip())
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
        raise HTTPProblem(
            416, f"The file has only {size:,} bytes.", {"content-range": f"bytes */{size}"}
        )
    return start, stop


async def _chunks(file: BinaryIO, start: int, stop: int) -> AsyncIterator[bytes]:
    try:
        await anyio.to_thread.run_sync(file.seek, start)
        while start < stop:
            chunk = await anyio.to_thread.run_sync(file.read, min(CHUNK_BYTES, stop - start))
            if not chunk:  # the file became shorter
                return
            start += len(chunk)
            yield chunk
    finally:
        file.close()
