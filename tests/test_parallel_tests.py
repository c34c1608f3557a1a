"""The command that runs the tests: its workers are forks of a process that has imported them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE = """
import os

import pytest

with open("imported", "a") as file:
    file.write("once ")


@pytest.mark.parametrize("number", range(8))
def test_number(number):
    with open("ran", "a") as file:
        file.write(f"{number} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""
TROUBLE = """
    assert number != 5
    if number == 2:
        os._exit(3)
"""


def run_tests(module: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a module on two workers."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (folder / "test_numbers.py").write_text(module)
    arguments = ["--workers", "2", "-p", "xdist", "test_numbers.py"]
    return subprocess.run(
        [sys.executable, "-c", "from tools.parallel_tests import main; exit(main())", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        text=True,
        capture_output=True,
        check=False,
    )


def numbers(folder: Path) -> list[int]:
    """Return which tests ran."""
    return sorted(int(line.split()[0]) for line in (folder / "ran").read_text().splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_workers_share_the_tests_and_what_one_process_imported(tmp_path: Path) -> None:
    done = run_tests(MODULE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
    assert numbers(tmp_path) == list(range(8))
    workers = {line.split()[1] for line in (tmp_path / "ran").read_text().splitlines()}
    assert workers == {"gw0", "gw1"}
    assert (tmp_path / "imported").read_text() == "once "


def test_failures_are_reported_and_a_worker_that_crashed_is_replaced(tmp_path: Path) -> None:
    done = run_tests(MODULE + TROUBLE, tmp_path)
    assert done.returncode == 1
    assert "assert 5 != 5" in done.stdout
    assert "crashed while running" in done.stdout
    assert "2 failed, 6 passed" in done.stdout
    assert numbers(tmp_path) == list(range(8))
