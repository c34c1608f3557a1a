"""Where torch computes: whether this machine has what was asked for, and on how many cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyglance.errors import MissingExtra, PolyglanceError


def check_device(name: str) -> None:
    """Refuse a device that cannot compute here, before anything else is done for it."""
    if name == "cpu":
        return
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtra(f"computing on {name}", "train") from error

    try:
        torch.ones(1, device=name).item()  # some devices can be named and not computed on
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        others = "cpu" if here is None else f"cpu or {here.type}"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise PolyglanceError(
            f"the device {name!r} cannot be used here ({reason}): choose {others}"
        ) from error


@contextmanager
def computing_on(threads: int | None) -> Iterator[None]:
    """Let torch compute on so many threads, then on as many as before; None for as it is."""
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
