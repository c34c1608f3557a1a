"""The cache folder, and atomic creation of folders in it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from polyglance.errors import PolyglanceError


def cache_folder() -> Path:
    """Return the folder for files that can be made again: POLYGLANCE_CACHE or the user's cache."""
    if own := os.environ.get("POLYGLANCE_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "polyglance"


def make_once(
    target: Path, is_complete: Callable[[Path], bool], make: Callable[[Path], None]
) -> Path:
    """Return the folder ``target``, made first unless it is complete.

    It is made in a temporary folder beside the target, which is renamed when finished: a
    killed process leaves no partial target. Processes that want the same target wait
    for the first one.

    Args:
        target: The folder.
        is_complete: Whether a folder exists and is whole.
        make: Writes the files into an empty folder.
    """
    if is_complete(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(target.with_name(f".{target.name}.lock")) as is_locked:
            if is_complete(target):  # made by another process while this one waited
                return target
            if is_locked:  # so these are of killed processes
                for leftover in target.parent.glob(f".{target.name}.*.partial"):
                    shutil.rmtree(leftover, ignore_errors=True)
            partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
            partial.mkdir()
            try:
                make(partial)
                _flush(partial)
                _move_into_place(partial, target, is_complete)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise PolyglanceError(
            f"cannot write to {target.parent} ({error.strerror or error}): free space "
            "there, or set POLYGLANCE_CACHE to another folder"
        ) from error
    return target


def _move_into_place(partial: Path, target: Path, is_complete: Callable[[Path], bool]) -> None:
    if is_complete(target):  # without locks another process may have finished first
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
def _exclusive_lock(lock: Path) -> Iterator[bool]:
    """Hold a file lock that ends with the process; yield whether the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows: `_move_into_place` lets the first finisher win
        yield False
        return
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield True


def _flush(folder: Path) -> None:
    """Sync every file to disk, readable for all, before the folder is renamed."""
    for path in folder.iterdir():
        path.chmod(0o644)
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
