"""Ray (https://docs.ray.io), for work by many processes: one of our own, or a cluster's."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from polyglance.errors import MissingExtra, PolyglanceError, printable, reason

PATIENCE = 5.0
"""Seconds for a Ray at an address to answer."""
OBJECTS = 100_000_000
"""Bytes that a Ray of our own keeps for what goes between processes: a few numbers."""
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray listen on loopback, on any system for all its name."""
_SECRET = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""Asked of whoever connects; Ray would keep one of its own making in the home folder. It is the
same as long as this process lives, for Ray remembers the first it was given."""
_SET_BY_RAY = "RAY_AUTH_MODE"
"""To "token", where nobody has set it; set by us, a Ray imported earlier would not heed it."""


def import_ray(*, alone: bool = False) -> Any:
    """Ray, which brings PyArrow, as quiet as it can be; ``alone`` on this machine, if it is new."""
    # Before the import: nothing is sent anywhere, and its own log is not for our users.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        with _environment(_ALONE if alone else {}):
            import pyarrow  # noqa: F401
            import ray
            import ray.data
    except ModuleNotFoundError as error:
        raise MissingExtra("encoding in bulk", "ray") from error
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


@contextmanager
def cluster(address: str | None, workers: int | None, threads: int) -> Iterator[int]:
    """Ray at an address, or one of our own for the while; how many workers there will be."""
    ray = import_ray(alone=address is None)
    if ray.is_initialized():
        yield workers or _room(ray, threads)
        return
    if address is not None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise PolyglanceError(f"no Ray answers at {printable(address)} ({error})") from error
        try:
            yield workers or _room(ray, threads)
        finally:
            ray.shutdown()
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    size = workers or max(1, (cores or 1) // threads)
    # The names of sockets in it must be short: not below whatever TMPDIR says.
    with (
        _environment({**_ALONE, **_SECRET}),
        tempfile.TemporaryDirectory(prefix="polyglance-ray-", dir=_short()) as scratch,
    ):
        ray.init(
            address="local",
            num_cpus=size * threads,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECTS,
            _temp_dir=scratch,
        )
        try:
            yield size
        finally:
            ray.shutdown()


def call(address: str) -> None:
    """See that somebody listens at an address: Ray itself would wait for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        if parts.hostname and parts.port:  # else it is a word, as auto
            socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE).close()
    except (OSError, ValueError) as error:
        raise PolyglanceError(
            f"no Ray answers at {printable(address)} ({reason(error)}): give the address of one,"
            " or none for this machine alone"
        ) from error


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Variables for the while, but for those that somebody has set; then all is as before."""
    before = {name: os.environ.get(name) for name in (*wanted, _SET_BY_RAY)}
    for name, value in wanted.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = earlier


def _room(ray: Any, threads: int) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)


def _short() -> str | None:
    return "/tmp" if os.path.isdir("/tmp") else None  # noqa: PTH112
