"""Torch devices and threads."""

from __future__ import annotations

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
