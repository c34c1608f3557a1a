"""Run the command line in a process of its own, with faults, and classify how it ended."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.faults.grid_encoder import GridEncoder
from polyglance.encoders import Picture
from polyglance.search import model_info
from polyglance.search.library import Library
from polyglance.search.store import LibraryNotFoundError

DEADLINE = 120.0
"""Seconds that a command may take; it takes one or two."""
OUTCOMES = ("right", "refused", "lost", "wrong", "endless", "traceback")
"""Ended with the expected content; with one sentence; with less; with other content; ..."""
BATCH = 16
"""Pictures that are stored together."""

Contents = dict[str, bytes]


class SlowEncoder(GridEncoder):
    """`GridEncoder` that takes its time, so that a fault comes in between."""

    seconds_per_picture = 0.0

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """See `GridEncoder.encode_pictures`."""
        time.sleep(self.seconds_per_picture * len(pictures))
        return super().encode_pictures(pictures)


@dataclass
class Tally:
    """How the trials of one fault ended."""

    fault: str
    outcomes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, outcome: str, note: str = "") -> None:
        """Count a trial; the first few that went wrong are noted."""
        self.outcomes[outcome] += 1
        if outcome not in ("right", "refused") and len(self.notes) < 5:
            short = re.sub(r"/\S*/", "", note)  # without the folders of this machine
            self.notes.append(f"{outcome}: {short[-300:]}")
        print(f"{self.fault}: {sum(self.outcomes.values())} {outcome} {note[-300:]}", flush=True)

    def as_json(self) -> dict[str, Any]:
        """Return the counts for the results file."""
        return {
            "trials": sum(self.outcomes.values()),
            **{outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            **({"notes": self.notes} if self.notes else {}),
        }


class Command:
    """`polyglance` in a forked process, which has imported everything already."""

    def __init__(
        self,
        *arguments: object,
        seconds_per_picture: float = 0.0,
        prepare: Callable[[], None] | None = None,
        log: Path,
    ) -> None:
        """Start the command.

        Args:
            arguments: Of the command line.
            seconds_per_picture: What the encoder takes besides.
            prepare: Called in the process before the command.
            log: Receives what it prints.
        """
        self.log, self.deadline = log, time.monotonic() + DEADLINE
        self.status: int | None = None
        sys.stdout.flush()
        self.process = os.fork()
        if not self.process:
            self._run([str(argument) for argument in arguments], seconds_per_picture, prepare)

    def _run(
        self, arguments: list[str], seconds: float, prepare: Callable[[], None] | None
    ) -> None:
        from polyglance.cli import main

        redirect(self.log)
        code = 1
        try:
            encoder = SlowEncoder()
            encoder.seconds_per_picture = seconds
            model_info.load = lambda *_, **__: encoder  # type: ignore[assignment]
            if prepare is not None:
                prepare()
            sys.argv = ["polyglance", *arguments]
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        if self.status is None:
            done, status = os.waitpid(self.process, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self.poll() is None:
            os.kill(self.process, signal.SIGKILL)
            _, status = os.waitpid(self.process, 0)
            self.status = os.waitstatus_to_exitcode(status)

    def finish(self) -> str | None:
        """Wait for the end; return an outcome that is decided by it alone, or None."""
        while self.poll() is None:
            if time.monotonic() > self.deadline:
                self.kill()
                return "endless"
            time.sleep(0.01)
        if "Traceback (most recent call last)" in self.text or self.status not in (0, 1, 2):
            return "traceback"
        return None

    @property
    def text(self) -> str:
        """What it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def redirect(log: Path) -> None:
    """Let all that this process prints go to a file."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def write_pictures(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """Write pictures of random colours, no two of which have the same vector or time."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).resize((64, 48)).save(path)
        # Old, each of another second: what has the size and time on record counts as unchanged.
        os.utime(path, (1.6e9 + int(path.stem),) * 2)
    return paths


def contents(place: Path | str) -> Contents:
    """Return the vectors of each file in a library, by path."""
    with Library(place, model=GridEncoder()) as library:
        return {entry.item.path: entry.vectors.tobytes() for entry in library._store().entries()}


def count_files(place: Path | str) -> int:
    """Return the number of files in a library while it is written."""
    try:
        with Library(place, model=GridEncoder()) as library:
            return len(library)
    except LibraryNotFoundError:
        return 0


def vectors_by_content(place: Path | str) -> dict[str, bytes]:
    """Return the vectors of a library by the SHA-256 of the files."""
    return {_sha256(Path(path)): vectors for path, vectors in contents(place).items()}


def expected_contents(paths: Sequence[Path], known: Mapping[str, bytes]) -> Contents:
    """Return what a library must hold of the files as they are now.

    Args:
        paths: The files.
        known: Vectors by content, of a library that met no fault.

    Returns:
        Vectors by path.
    """
    return {str(path): known[_sha256(path)] for path in paths}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compare(found: Contents, expected: Contents) -> tuple[str, str]:
    """Return the outcome of comparing a library with what it must hold."""
    wrong = [path for path in expected if path in found and found[path] != expected[path]]
    strange = [path for path in found if path not in expected]
    if wrong or strange:
        return "wrong", f"{len(wrong)} wrong, {len(strange)} unknown: {(wrong + strange)[0]}"
    lost = [path for path in expected if path not in found]
    return ("lost", f"{len(lost)} lost: {lost[0]}") if lost else ("right", "")


def wait_for(command: Command, place: Path | str, files: int) -> None:
    """Wait until a library has as many files, or the command ends."""
    while command.poll() is None and count_files(place) < files:
        if time.monotonic() > command.deadline:
            return
        time.sleep(0.01)


@contextmanager
def settings_in(folder: Path) -> Iterator[None]:
    """Keep the user's own settings out of the campaign."""
    before = os.environ.get("POLYGLANCE_CONFIG")
    os.environ["POLYGLANCE_CONFIG"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["POLYGLANCE_CONFIG"]
        else:
            os.environ["POLYGLANCE_CONFIG"] = before
