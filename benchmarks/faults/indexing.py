"""Faults while `polyglance index` runs: kills, swapped names, disks that go away or fill up.

After each fault the library must open, and hold nothing but right vectors of right files. When
the fault is over, the same command must end with the content of a library that met none.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.grid_encoder import GridEncoder
from benchmarks.faults.trials import (
    Command,
    Contents,
    Tally,
    compare,
    contents,
    count_files,
    expected_contents,
    vectors_by_content,
    wait_for,
    write_pictures,
)
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.search.store import LibraryNotFoundError

SLOW = 0.004
"""Seconds a picture, so that a fault meets a command that is at work."""
_DAC_CAPABILITIES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root reads what its mode forbids."""
_PR_CAPBSET_DROP, _CAPABILITY_VERSION = 24, 0x20080522


class Campaign:
    """Pictures, and the content of a library of them that met no fault."""

    def __init__(self, scratch: Path, pictures: int, rng: random.Random) -> None:
        """Write the pictures and index them once, undisturbed."""
        self.scratch, self.rng = scratch, rng
        self.folder = scratch / "pictures"
        self.paths = write_pictures(self.folder, pictures)
        self.log = scratch / "log"
        place = scratch / "undisturbed.polyglance"
        if self.index(place).finish() is not None or count_files(place) != pictures:
            raise SystemExit(f"indexing failed without a fault: {self.log.read_text()}")
        self.known = vectors_by_content(place)
        self.size = place.stat().st_size

    def index(self, place: Path | str, **options: Any) -> Command:
        """Start `polyglance index`."""
        return Command("index", self.folder, "--library", place, "--quiet", log=self.log, **options)

    def expected(self, paths: Sequence[Path] | None = None) -> Contents:
        """Return what a library must hold now."""
        return expected_contents(self.paths if paths is None else paths, self.known)

    def new_place(self) -> Path:
        """Return a place for a library, in a folder of its own."""
        folder = self.scratch / "library"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder / "library.polyglance"

    def check(self, place: Path | str, expected: Contents) -> tuple[str, str]:
        """Return whether what a library holds after a fault is sound, though it may be less."""
        try:
            with Library(place, model=GridEncoder()) as library:
                damage = library.verify()
        except LibraryNotFoundError:
            return "right", ""  # the fault came before it was created
        except PolyglanceError as error:
            return "lost", str(error)
        if damage:
            return "wrong", damage[0]
        outcome, note = compare(contents(place), expected)
        return ("right", "") if outcome == "lost" else (outcome, note)

    def complete(self, place: Path | str, expected: Callable[[], Contents]) -> tuple[str, str]:
        """Run the same command again, without a fault; return how the library ends."""
        again = self.index(place)
        if (outcome := again.finish()) is not None:
            return outcome, again.text
        if again.status != 0:
            return "lost", again.text
        return compare(contents(place), expected())

    def judge(
        self, place: Path | str, ended: str | None, text: str, during: Contents
    ) -> tuple[str, str]:
        """Return the outcome of a command with a fault and of the one after it."""
        if ended is not None:
            return ended, text
        outcome, note = self.check(place, during)
        if outcome != "right":
            return outcome, note
        return self.complete(place, self.expected)


def kills(campaign: Campaign, count: int) -> Tally:
    """Kill indexing with SIGKILL at random moments."""
    tally = Tally("indexing killed")
    for _ in range(count):
        place = campaign.new_place()
        command = campaign.index(place, seconds_per_picture=SLOW)
        wait_for(command, place, campaign.rng.randrange(len(campaign.paths)))
        time.sleep(campaign.rng.uniform(0, 0.1))
        command.kill()
        tally.add(*campaign.judge(place, None, "", campaign.expected()))
    return tally


def swaps_same_time(campaign: Campaign, count: int) -> Tally:
    """Let files of one modification time swap names, some of which have the same size too."""
    times = {path: path.stat().st_mtime_ns for path in campaign.paths}
    for path in campaign.paths:
        os.utime(path, (1.6e9, 1.6e9))
    try:
        return swaps(campaign, count, "names swapped of files of one time")
    finally:
        for path, time_ns in times.items():
            os.utime(path, ns=(time_ns, time_ns))


def swaps(campaign: Campaign, count: int, name: str = "names swapped while indexing") -> Tally:
    """Let files swap names all the while; afterwards each must have its own vector."""
    tally = Tally(name)
    for _ in range(count):
        place = campaign.new_place()
        command = campaign.index(place, seconds_per_picture=SLOW)
        while command.poll() is None and time.monotonic() < command.deadline:
            _swap(*campaign.rng.sample(campaign.paths, 2))
            time.sleep(0.0005)
        ended = command.finish()
        if ended is not None:
            tally.add(ended, command.text)
            continue
        outcome, note = campaign.complete(place, campaign.expected)
        if outcome == "right":
            with Library(place, model=GridEncoder()) as library:
                damage = library.verify(files=True)
            outcome, note = ("wrong", damage[0]) if damage else (outcome, note)
        tally.add(outcome, note)
    return tally


def _swap(one: Path, other: Path) -> None:
    aside = one.with_name(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def folder_away(campaign: Campaign, count: int) -> Tally:
    """Take the folder away while it is indexed; index without it; bring it back."""
    tally = Tally("folder away while indexing")
    aside = campaign.folder.with_name("away")
    for number in range(count):
        place = campaign.new_place()
        expected = campaign.expected()
        command = campaign.index(place, seconds_per_picture=SLOW)
        wait_for(command, place, campaign.rng.randrange(len(campaign.paths)))
        campaign.folder.rename(aside)
        if number % 2:
            campaign.folder.mkdir()  # as the mount point of a disk that is away

        def back() -> None:
            if aside.exists():
                with suppress(FileNotFoundError):
                    campaign.folder.rmdir()
                aside.rename(campaign.folder)

        try:
            tally.add(*_while_away(campaign, command, place, expected, back))
        finally:
            back()
    return tally


def _while_away(
    campaign: Campaign,
    command: Command,
    place: Path,
    expected: Contents,
    back: Callable[[], object],
    **options: Any,
) -> tuple[str, str]:
    """Wait for a command, re-scan while files are away, then bring them back and complete."""
    ended = command.finish()
    if ended is not None:
        return ended, command.text
    before = contents(place) if place.exists() else {}
    again = Command("index", "--library", place, "--quiet", log=campaign.log, **options)
    if (ended := again.finish()) is not None:
        return ended, again.text
    after = contents(place) if place.exists() else {}
    if lost := set(before) - set(after):
        return "lost", f"{len(lost)} dropped while they were away: {min(lost)}"
    outcome, note = campaign.check(place, expected)
    if outcome != "right":
        return outcome, note
    back()
    return campaign.complete(place, lambda: expected)


def rights_lost(campaign: Campaign, count: int) -> Tally:
    """Take the right to read from a part of the files while they are indexed; give it back."""
    tally = Tally("rights lost while indexing")
    for _ in range(count):
        place = campaign.new_place()
        expected = campaign.expected()
        chosen = campaign.rng.sample(campaign.paths, len(campaign.paths) // 3)
        command = campaign.index(place, seconds_per_picture=SLOW, prepare=_obey_modes)
        wait_for(command, place, campaign.rng.randrange(len(campaign.paths)))
        for path in chosen:
            path.chmod(0)

        def back(chosen: Sequence[Path] = chosen) -> None:
            for path in chosen:
                path.chmod(0o644)

        try:
            tally.add(*_while_away(campaign, command, place, expected, back, prepare=_obey_modes))
        finally:
            back()
    return tally


def _obey_modes() -> None:
    """Give up root's capabilities to read any file; others have none to give up."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _DAC_CAPABILITIES:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # for processes that this one starts
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for field in range(3):  # effective, permitted, inheritable
        data[field] &= ~sum(1 << capability for capability in _DAC_CAPABILITIES)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def reading_fails(campaign: Campaign, count: int) -> Tally:
    """Let every fifth attempt to open a picture fail with EIO, as on a failing disk."""
    tally = Tally("reading fails while indexing")
    for _ in range(count):
        place = campaign.new_place()
        rng = random.Random(campaign.rng.random())
        command = campaign.index(place, prepare=lambda rng=rng: _fail_reading(campaign.folder, rng))
        ended = command.finish()
        tally.add(*campaign.judge(place, ended, command.text, campaign.expected()))
    return tally


def _fail_reading(folder: Path, rng: random.Random) -> None:
    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, *arguments: Any, **options: Any) -> Any:
            if (
                isinstance(path, str | bytes | Path)
                and os.fsdecode(path).startswith(f"{folder}/")
                and rng.random() < 0.2
            ):
                raise OSError(errno.EIO, os.strerror(errno.EIO), os.fsdecode(path))
            return real(path, *arguments, **options)

        return opened

    builtins.open = io.open = failing(open)
    os.open = failing(os.open)


def full_disk(campaign: Campaign, count: int) -> Tally:
    """Let the library's disk fill up at a random size; make room and run the command again.

    The disk is a file system in memory of that size where the user may mount one, else a limit on
    the size of files.
    """
    tally = Tally("disk full while indexing")
    for _ in range(count):
        place = campaign.new_place()
        size = campaign.rng.randrange(20_000, campaign.size)
        mounted = _mount(place.parent, size)
        try:
            prepare = None if mounted else (lambda size=size: _limit_files(size))
            command = campaign.index(place, prepare=prepare)
            ended = command.finish()
            if mounted:
                _mount(place.parent, 64_000_000, "remount,")
            tally.add(*campaign.judge(place, ended, command.text, campaign.expected()))
        finally:
            if mounted:
                subprocess.run(["umount", place.parent], check=True)
    return tally


def _mount(folder: Path, size: int, options: str = "") -> bool:
    if shutil.which("mount") is None or os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"{options}size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _limit_files(size: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit))
