"""What all batches can do: be pinned and be copied to a device.

A batch is a frozen dataclass of tensors, numbers and further dataclasses (`Text`, `Packing`,
region batches). Tasks sample it on the CPU, several steps ahead, in a background thread; the
training step takes it on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from polyglance.nn.packing import to_device


class PendingReads(Protocol):
    """Reads under way into the tensors of a batch."""

    def wait(self) -> None:
        """Return when all is read; raises what reading raised."""
        ...


class Batch:
    """Base class of batches, which are frozen dataclasses."""

    reads: tuple[PendingReads, ...] = ()
    """What is still being read from a disk."""

    def counts(self) -> dict[str, int]:
        """Return how many terms the mean of each loss has, by its name.

        A loss that is a mean over the masked words of a process's share of a batch weighs as
        many words as the share has. Losses that are not named weigh equally on all processes.
        """
        return {}

    def to(self, device: torch.device | str) -> Self:
        """Copy all tensors to ``device`` asynchronously; those there already are not copied."""
        self.wait()
        moved: Self = map_tensors(self, lambda tensor: to_device(tensor, device))
        return moved

    def pin_memory(self) -> Self:
        """Copy all tensors of the CPU to pinned memory, which an accelerator can read alone."""
        self.wait()
        pinned: Self = map_tensors(
            self, lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory()
        )
        return pinned

    def wait(self) -> None:
        """Wait until all of the batch is read."""
        for read in self.reads:
            read.wait()
        for part in _parts(self):
            part.wait()

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors of the batch."""
        found: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        map_tensors(self, note)
        return iter(found)


def _parts(value: Any) -> Iterator[Batch]:
    """Yield the batches in the fields of a dataclass, and in containers in them."""
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return
    for item in value:
        if isinstance(item, Batch):
            yield item
        else:
            yield from _parts(item)


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor in dataclasses, tuples, lists and mappings.

    Everything else stays as it is.
    """
    if isinstance(value, Tensor):
        return function(value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: map_tensors(getattr(value, field.name), function) for field in fields(value)
        }
        return type(value)(**changed)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map_tensors(item, function) for item in value)
    return value
