"""Several processes that train as one (``torchrun``): joint batches, averaged gradients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn


@contextmanager
def joined() -> Iterator[int]:
    """Join the other processes that ``torchrun`` started, if it did; yields this one's rank."""
    if "RANK" not in os.environ or dist.is_initialized():
        yield rank()
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Which of the processes this is; 0 when there is only one."""
    return dist.get_rank() if dist.is_initialized() else 0


def processes() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def wait_for_all() -> None:
    """Go on when all processes have come here, as before reading what the first one wrote."""
    if processes() > 1:
        dist.barrier()


def own_share(items: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of the items that this process draws from, as many on each.

    Parts do not overlap: a picture that two processes drew in one step would be
    its own negative.
    """
    each = len(items) // processes()
    return items[rank() :: processes()][:each]


def share_weights(model: nn.Module) -> None:
    """Begin everywhere with the weights and buffers of the first process."""
    if processes() == 1:
        return
    for tensor in model.state_dict().values():
        whole = tensor.contiguous()
        dist.broadcast(whole, 0)
        tensor.copy_(whole)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give each gradient its mean over all processes, in one exchange.

    All processes take the same task in a step, so the same parameters have a
    gradient on each.
    """
    if processes() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    joint = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(joint)
    joint /= processes()
    means = torch.split(joint, [gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of their ranks; gradients flow back to each.

    Every process computes the loss over all gathered rows, and `average_gradients`
    follows. Backwards, a row receives the sum of what all processes say of it, so
    that the average is exactly the gradient that one process with all rows would
    have. All processes must bring the same number.
    """
    if processes() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        parts = [torch.empty_like(rows) for _ in range(processes())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # A copy: the gradient may also belong to whatever else the rows were added to.
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(processes())[rank()]
