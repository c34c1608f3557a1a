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


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt."""


def keep_freed_memory() -> bool:
    """Let this process keep the memory of freed tensors for the next ones, in glibc's heap.

    On a CPU, glibc takes the memory of each large tensor from the system and gives it back at
    once, and the system clears every page of it: a fifth to a half of a training step.

    Returns:
        Whether the allocator is glibc's, so that it will.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # other C libraries; Windows has no CDLL(None)
        return False
    return bool(set_option(_MMAP_MAX, 0) and set_option(_TRIM_THRESHOLD, -1))
