"""The cache folder, in which a folder of weights appears whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from polyglance.errors import PolyglanceError


def cache_folder() -> Path:
    """Where Polyglance keeps what it can make again: POLYGLANCE_CACHE, else the user's cache."""
    if own := os.environ.get("POLYGLANCE_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "polyglance"


def make_once(
    target: Path, is_complete: Callable[[Path], bool], make: Callable[[Path], None]
) -> Path:
    """Return ``target``, which ``make`` fills if ``is_complete`` finds it missing or broken.

    The work is done in a folder beside the target, which takes the target's
    name when it is finished: killed at any moment, it leaves no half folder
    under that name. Processes that want the same target wait for the first one.
    """
    if is_complete(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(target.with_name(f".{target.name}.lock")) as alone:
            if is_complete(target):  # made by another process while this one waited
                return target
            if alone:  # then whoever left these was killed
                for leftover in target.parent.glob(f".{target.name}.*.partial"):
                    shutil.rmtree(leftover, ignore_errors=True)
            partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
            partial.mkdir()
            try:
                make(partial)
                _flush(partial)
                _put_in_place(partial, target, is_complete)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise PolyglanceError(
            f"cannot write weights to {target.parent} ({error.strerror or error}): make room "
            "there, or set POLYGLANCE_CACHE to another folder"
        ) from error
    return target


def _put_in_place(partial: Path, target: Path, is_complete: Callable[[Path], bool]) -> None:
    if is_complete(target):  # where nothing locks, another process may have been faster
        return
    broken = partial.with_name(f"{partial.name}.old.partial")
    if target.exists():
        target.rename(broken)
    try:
        partial.rename(target)
    except OSError:
        if not is_complete(target):
            raise
    finally:
        shutil.rmtree(broken, ignore_errors=True)


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[bool]:
    """Hold a lock that dies with the process; yields whether this system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows: `_put_in_place` lets the first finisher win
        yield False
        return
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield True


def _flush(folder: Path) -> None:
    """Have every byte on the disk, readable for all, before the folder gets its name."""
    for path in folder.iterdir():
        path.chmod(0o644)
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
