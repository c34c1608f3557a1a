"""Several processes that train as one (``torchrun``), and contrastive gathers between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def joined() -> Iterator[int]:
    """Join the other processes that ``torchrun`` started, if it did; yields this one's rank."""
    if "RANK" not in os.environ or dist.is_initialized():
        yield rank()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
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


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of their ranks; gradients flow back to each.

    Every process computes the loss over all gathered rows, and DDP then averages
    the parameters' gradients. Backwards, a row receives the sum of what all
    processes say of it, so that the average is exactly the gradient that one
    process with all rows would have. All processes must bring the same number.
    """
    if processes() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(processes())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        return total.chunk(processes())[rank()]
