from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyglance.errors import PolyglanceError
from polyglance.weights.cache import make_once


def is_complete(folder: Path) -> bool:
    return (folder / "done").is_file()


def make(folder: Path) -> None:
    (folder / "data").write_text("whole")
    (folder / "done").touch()


# A process that takes its time to make the folder, and says when it has begun.
SLOW = """
import sys, time
from pathlib import Path
from polyglance.weights.cache import make_once

def make(folder):
    with open(sys.argv[2], "a") as log:
        log.write("made\\n")
    (folder / "data").write_text("half")
    print("begun", flush=True)
    time.sleep(float(sys.argv[3]))
    (folder / "data").write_text("whole")
    (folder / "done").touch()

make_once(Path(sys.argv[1]), lambda folder: (folder / "done").is_file(), make)
"""


def start(target: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOW, str(target), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_concurrent_processes_make_a_folder_once(tmp_path: Path) -> None:
    target, log = tmp_path / "cache" / "toy", tmp_path / "log"
    running = [start(target, log, 0.3) for _ in range(4)]
    assert [process.wait(timeout=30) for process in running] == [0] * 4
    for process in running:
        process.communicate()
    assert log.read_text() == "made\n"
    assert (target / "data").read_text() == "whole"


def test_killed_process_leaves_no_partial_folder(tmp_path: Path) -> None:
    target, log = tmp_path / "toy", tmp_path / "log"
    victim = start(target, log, 60)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "begun\n"
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert not target.exists()
    assert len(list(tmp_path.glob(".toy.*.partial"))) == 1
    successor = start(target, log, 0)
    assert successor.wait(timeout=60) == 0  # the dead process's lock is gone with it
    successor.communicate()
    assert not list(tmp_path.glob(".toy.*.partial"))
    assert (target / "data").read_text() == "whole"
    assert not list(tmp_path.glob(".toy.*.partial"))


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "data").write_text("half")
        raise PolyglanceError("cannot")

    with pytest.raises(PolyglanceError, match="cannot"):
        make_once(tmp_path / "toy", is_complete, fail)
    assert [path.name for path in tmp_path.iterdir()] == [".toy.lock"]


def test_broken_folder_is_replaced_only_on_success(tmp_path: Path) -> None:
    target = tmp_path / "toy"
    target.mkdir()
    (target / "data").write_text("broken")

    def fail(folder: Path) -> None:
        raise PolyglanceError("cannot")

    with pytest.raises(PolyglanceError):
        make_once(target, is_complete, fail)
    assert (target / "data").read_text() == "broken"
    make_once(target, is_complete, make)
    assert (target / "data").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".toy.lock", "toy"]


def test_without_locks_the_first_to_finish_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    target = tmp_path / "toy"

    def make_while_another_finishes(folder: Path) -> None:
        make(folder)
        target.mkdir()
        (target / "data").write_text("the other's")
        (target / "done").touch()

    assert make_once(target, is_complete, make_while_another_finishes) == target
    assert (target / "data").read_text() == "the other's"
    assert is_complete(target)
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_complete_folder_in_a_read_only_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_once(tmp_path / "toy", is_complete, make)

    def forbidden(*args: object, **kwargs: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "mkdir", forbidden)
    monkeypatch.setattr(Path, "open", forbidden)
    assert make_once(tmp_path / "toy", is_complete, make) == tmp_path / "toy"


def test_files_can_be_read_by_all(tmp_path: Path) -> None:
    def make_private(folder: Path) -> None:
        make(folder)
        (folder / "data").chmod(0o600)

    target = make_once(tmp_path / "toy", is_complete, make_private)
    assert (target / "data").stat().st_mode & 0o777 == 0o644
