"""Tasks for the processes of `polyglance.utils.worker_pool`, good and bad."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from polyglance.errors import DataError

Replies = Iterator[tuple[dict[str, Any], bytes]]


def echo(settings: dict[str, Any], payload: bytes) -> Replies:
    for _ in range(settings.get("times", 1)):
        yield {"pid": os.getpid(), "settings": settings}, payload


def refuse(settings: dict[str, Any], payload: bytes) -> Replies:
    raise DataError("is no picture")


def crash(settings: dict[str, Any], payload: bytes) -> Replies:
    signal.raise_signal(signal.SIGSEGV)
    yield {}, b""


def vanish(settings: dict[str, Any], payload: bytes) -> Replies:
    """As if the kernel were short of memory."""
    signal.raise_signal(signal.SIGKILL)
    yield {}, b""


def loop(settings: dict[str, Any], payload: bytes) -> Replies:
    while True:
        pass
    yield {}, b""


def allocate(settings: dict[str, Any], payload: bytes) -> Replies:
    yield {"size": len(bytearray(settings["size"]))}, b""


def babble(settings: dict[str, Any], payload: bytes) -> Replies:
    """Print, as C libraries do, which must not be taken as a reply."""
    os.write(1, b"corrupt data\n")
    yield {"fine": True}, b""
