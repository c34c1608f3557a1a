"""Torch devices, threads and memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from polyglance.errors import MissingExtraError, PolyglanceError


def check_device(name: str) -> None:
    """Raise a `PolyglanceError` if torch cannot compute on this device."""
    if name == "cpu":
        return
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"computing on {name}", "train") from error

    try:
        torch.ones(1, device=name).item()  # some devices have a name but cannot compute
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        is_there = torch.accelerator.is_available()
        accelerator = torch.accelerator.current_accelerator() if is_there else None
        others = "cpu" if accelerator is None else f"cpu or {accelerator.type}"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise PolyglanceError(
            f"the device {name!r} cannot be used here ({reason}): choose {others}"
        ) from error


@contextmanager
def torch_num_threads(threads: int | None) -> Iterator[None]:
    """Set torch's number of threads within the context; None leaves it unchanged."""
    import torch

    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Parameters of glibc's mallopt."""
_NEVER = -1
_USUAL = ((_MMAP_MAX, 65_536), (_MMAP_THRESHOLD, 1 << 25), (_TRIM_THRESHOLD, 1 << 26))
"""What glibc does by itself once large blocks were freed."""


@contextmanager
def keep_freed_memory() -> Iterator[bool]:
    """Let the process keep the memory of freed tensors for the next ones, within the context.

    On a CPU, glibc takes the memory of each large tensor from the system and gives it back at
    once, and the system clears every page of it again (benchmarks/speed/kept_memory.py).

    Yields:
        Whether glibc took the setting; other C libraries are left alone.
    """
    try:
        glibc = ctypes.CDLL(None)
        set_option, trim = glibc.mallopt, glibc.malloc_trim
    except (AttributeError, OSError, TypeError):  # Windows has no CDLL(None)
        yield False
        return
    try:
        yield bool(set_option(_MMAP_MAX, 0) and set_option(_TRIM_THRESHOLD, _NEVER))
    finally:
        for option, value in _USUAL:
            set_option(option, value)
        trim(0)
