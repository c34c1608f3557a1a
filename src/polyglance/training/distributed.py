"""Distributed data-parallel training under ``torchrun``: joint batches, averaged gradients."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from polyglance.errors import PolyglanceError

T = TypeVar("T")


@contextmanager
def init_distributed() -> Iterator[int]:
    """Join the process group of ``torchrun``, if there is one, and yield this process's rank."""
    if "RANK" not in os.environ or dist.is_initialized():
        yield rank()
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    store, number, count = next(rendezvous("env://"))
    # torchrun keeps its store when it restarts a run, with addresses of processes that are gone.
    attempt = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group(backend, store=attempt, rank=number, world_size=count)
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Return the rank of this process; 0 without a process group."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def barrier() -> None:
    """Wait for all processes, such as before reading what the first one wrote."""
    if world_size() > 1:
        dist.barrier()


def count_weights(counts: Mapping[str, int], device: torch.device | str) -> dict[str, Tensor]:
    """Return what to multiply means over this process's items with, by the name of the loss.

    Masked words are not equally many on each process. With these weights the average over
    processes, of losses and of their gradients, is the mean over the items of all processes.
    All processes must call this together, with the same names.

    Args:
        counts: How many items, such as masked words, each mean averages over.
        device: Where the losses are.
    """
    if world_size() == 1 or not counts:
        return {}
    own = torch.tensor(list(counts.values()), dtype=torch.float32).to(device, non_blocking=True)
    total = own.clone()
    dist.all_reduce(total)
    return dict(zip(counts, own * world_size() / total.clamp(min=1), strict=True))


def average_values(values: dict[str, Tensor]) -> dict[str, float]:
    """Return the mean of each named scalar over all processes, the same on each."""
    joint = torch.stack([value.detach().float() for value in values.values()])
    if world_size() > 1:
        dist.all_reduce(joint)
        joint /= world_size()
    return dict(zip(values, joint.tolist(), strict=True))


def on_first_rank(function: Callable[[], T]) -> T:
    """Call a function on the first process alone; return its result, or raise its error, on all.

    The result must fit into JSON. Of errors, those that a user can cause are shared
    (`PolyglanceError`); others end the first process, and ``torchrun`` the rest.
    """
    if world_size() == 1:
        return function()
    holder: list[Any] = [None]
    if rank() == 0:
        try:
            holder[0] = json.dumps({"result": function()})
        except PolyglanceError as error:
            holder[0] = json.dumps({"error": str(error)})
    dist.broadcast_object_list(holder, 0)
    outcome = json.loads(holder[0])
    if "error" in outcome:
        raise PolyglanceError(outcome["error"])
    result: T = outcome["result"]
    return result


def is_sharded(tensor: Tensor) -> bool:
    """Return whether each process holds a part of the tensor (FSDP2)."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that may be sharded; all processes must call it together."""
    if is_sharded(tensor):
        whole: Tensor = tensor.detach().full_tensor()  # type: ignore[attr-defined]
        return whole
    return tensor.detach()


def local_part(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor that may be sharded, in the same memory."""
    if is_sharded(tensor):
        part: Tensor = tensor.detach().to_local()  # type: ignore[attr-defined]
        return part
    return tensor.detach()


def shard_like(whole: Tensor, like: Tensor) -> Tensor:
    """Return this process's part of a tensor that all have, if ``like`` is sharded."""
    if not is_sharded(like):
        return whole
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(
        whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def broadcast_parameters(model: nn.Module) -> None:
    """Copy weights and buffers of the first process to all others."""
    if world_size() == 1:
        return
    for tensor in model.state_dict().values():
        whole = tensor.contiguous()
        dist.broadcast(whole, 0)
        tensor.copy_(whole)


def broadcast_buffers(model: nn.Module) -> None:
    """Copy buffers, such as running means, of the first process to all others."""
    if world_size() > 1:
        for buffer in model.buffers():
            whole = buffer.contiguous()
            dist.broadcast(whole, 0)
            buffer.copy_(whole)


def gather_rows(rows: Tensor) -> Tensor:
    """Concatenate the rows of all processes by rank, ``(world_size * n, width)``, with gradients.

    Every process computes the loss over all gathered rows, and gradients are averaged over
    processes. In the backward pass a row receives the sum of its gradients on all processes, so
    that the average is exactly the gradient that one process with all rows would have. All
    processes must have equally many rows.
    """
    if world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        parts = [torch.empty_like(rows) for _ in range(world_size())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # A copy, since autograd may share the gradient with other consumers.
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(world_size())[rank()]
