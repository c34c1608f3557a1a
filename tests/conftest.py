"""What several tests share."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.testing
from hypothesis import settings

if TYPE_CHECKING:
    from benchmarks.postgres_server import Server

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Tests confirm folders, which must not end up in the settings of whoever runs them.
os.environ["POLYGLANCE_CONFIG"] = tempfile.mkdtemp(prefix="polyglance-tests-")

# A runner reads the parameters of all our commands before it runs one: the same every time.
typer.testing._get_command = cache(typer.testing._get_command)

_BEGUN_FIRST = (
    "tests/search/test_bulk", "tests/test_bare_install.py", "tests/serve/", "tests/benchmarks/",
    "tests/docs/",
)  # fmt: skip


def pytest_configure() -> None:
    """While tests are collected, all objects stay: looking for others takes a third of the time."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules stay, too; from now on only what tests create is looked through."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)  # seldom: few objects of a test outlive it
    if session.config.option.collectonly:
        # `make test` collects in one process first, which compiles for the workers what they
        # import: also 800 modules that torch imports with the first optimiser.
        import torch._dynamo  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take longest come first: begun last, one would keep all but its worker waiting."""
    items.sort(key=lambda item: not item.nodeid.startswith(_BEGUN_FIRST))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of research data that POLYGLANCE_DATA names, for tests that measure on it."""
    folder = os.environ.get("POLYGLANCE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set POLYGLANCE_DATA to the folder of research data to measure on it")
    return Path(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server with pgvector."""
    from benchmarks.postgres_server import Server

    server = Server()
    yield server
    server.close()
