"""What several tests share."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
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

# Tests write thousands of small files and databases that wait until the disk has them. In memory
# nothing waits. Worker processes find the folder in TMPDIR, by which one can also ask for another.
_MEMORY = Path("/dev/shm")
_ROOM = 4 * 2**30  # bytes; all tests together write less than half of that


def _make_folder_in_memory() -> None:
    """Create a folder for temporary files in memory, if there is room."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    memory = os.statvfs(_MEMORY)
    if memory.f_bavail * memory.f_frsize < _ROOM or memory.f_flag & os.ST_NOEXEC:
        return
    folder = tempfile.mkdtemp(prefix="polyglance-", dir=_MEMORY)
    os.chmod(folder, 0o755)  # noqa: PTH101 - started by root, PostgreSQL runs as another user
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, creator: int) -> None:
    """Free the memory; files of a failed test stay for whoever looks into it."""
    if os.getpid() == creator and not _failed:
        shutil.rmtree(folder, ignore_errors=True)


_failed = False
_make_folder_in_memory()


def pytest_sessionfinish(exitstatus: int) -> None:
    """Note whether a test failed."""
    global _failed
    _failed = exitstatus == pytest.ExitCode.TESTS_FAILED


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
        # `make test` collects in one process first, of which the workers are forks. They need also
        # the 800 modules that torch imports with the first optimiser.
        import torch._dynamo  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take longest come first: begun last, one would keep all but its worker waiting."""
    items.sort(key=lambda item: not item.nodeid.startswith(_BEGUN_FIRST))


def pytest_runtest_teardown() -> None:
    """Let convolutions stay fast after a test in bfloat16.

    On a CPU without bfloat16, oneDNN fails and torch disables it for the rest of the process:
    EfficientNets in later tests would take four times as long.
    """
    torch = sys.modules.get("torch")
    if torch is not None and not torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.enabled = True


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
