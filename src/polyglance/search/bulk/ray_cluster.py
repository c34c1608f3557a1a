"""Start Ray (https://docs.ray.io) on this machine, or connect to a cluster."""

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

from polyglance.errors import MissingExtraError, PolyglanceError, error_reason, printable
from polyglance.utils.cores import available_cores

CONNECT_TIMEOUT = 5.0
"""Seconds for a Ray cluster to answer."""
OBJECT_STORE_BYTES = 100_000_000
"""Object store of our own Ray; only a few numbers go between processes."""
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Despite its name, makes Ray listen on loopback on every system."""
_SECRET = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""Required of every connection; otherwise Ray would store a token in the home folder. One token
per process, since Ray remembers the first one it was given."""
_SET_BY_RAY = "RAY_AUTH_MODE"
"""Ray sets it to "token" if it is unset; a Ray imported earlier would ignore our setting it."""


def import_ray(*, alone: bool = False) -> Any:
    """Import Ray and PyArrow, silenced; ``alone``, so that it listens on loopback only."""
    # Before the import: no usage statistics, and no log of Ray's own.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        with _environment(_LOOPBACK if alone else {}):
            import pyarrow  # noqa: F401
            import ray
            import ray.data
    except ModuleNotFoundError as error:
        raise MissingExtraError("encoding in bulk", "ray") from error
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


@contextmanager
def cluster(address: str | None, workers: int | None, threads: int) -> Iterator[int]:
    """Connect to a Ray cluster, or run one on this machine, for the duration of the context.

    Args:
        address: The cluster's address; None for this machine alone.
        workers: Number of workers; None for as many as there are cores for.
        threads: Cores per worker.

    Yields:
        The number of workers.
    """
    ray = import_ray(alone=address is None)
    if ray.is_initialized():
        yield workers or _max_workers(ray, threads)
        return
    if address is not None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise PolyglanceError(f"no Ray answers at {printable(address)} ({error})") from error
        try:
            yield workers or _max_workers(ray, threads)
        finally:
            ray.shutdown()
        return
    size = workers or max(1, available_cores() // threads)
    # Unix socket paths must be short, so not below TMPDIR.
    with (
        _environment({**_LOOPBACK, **_SECRET}),
        _on_loopback(),
        tempfile.TemporaryDirectory(prefix="polyglance-ray-", dir=_short_folder()) as scratch,
    ):
        ray.init(
            address="local",
            num_cpus=size * threads,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=scratch,
        )
        try:
            yield size
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Check that something listens at an address: Ray itself would wait for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        if parts.hostname and parts.port:  # else it is a keyword such as auto
            socket.create_connection((parts.hostname, parts.port), timeout=CONNECT_TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise PolyglanceError(
            f"no Ray answers at {printable(address)} ({error_reason(error)}): give the address of"
            " a cluster, or none for this machine alone"
        ) from error


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let Ray listen on loopback also if it was imported before without our environment."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are unset, and restore all at the end."""
    before = {name: os.environ.get(name) for name in (*variables, _SET_BY_RAY)}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old


def _max_workers(ray: Any, threads: int) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)


def _short_folder() -> str | None:
    return "/tmp" if os.path.isdir("/tmp") else None  # noqa: PTH112
