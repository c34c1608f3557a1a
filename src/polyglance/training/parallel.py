"""Run a model on many processes: replicas with averaged gradients (DDP), or shards (FSDP2).

Both hook into a module's forward pass, and our tasks call many methods of a model in one step.
So a module around the model takes the whole computation of a step as its forward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from polyglance.nn.transformer import TransformerLayer
from polyglance.training.distributed import full_tensor, world_size

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Sharding = Literal["ddp", "fsdp"]
"""Whether each process holds the whole model (``ddp``) or a part of each tensor (``fsdp``)."""

T = TypeVar("T")


class Runner:
    """Runs computations of a model on the only process, or on one of many."""

    def forward(self, function: Callable[[], T]) -> T:
        """Return what ``function`` computes with the model; the backward pass may follow."""
        return function()

    def evaluate(self, function: Callable[[], T]) -> T:
        """Return what ``function`` computes with the model, without a backward pass.

        All processes must call it together, with the same computation.
        """
        return function()

    def accumulate(self) -> AbstractContextManager[None]:
        """Return a context in which backward passes add up gradients of this process alone."""
        return nullcontext()


@contextmanager
def run_parallel(model: nn.Module, sharding: Sharding) -> Iterator[Runner]:
    """Prepare the model to train on all processes; yield what runs it.

    With ``fsdp`` the model's parameters are replaced by shards (`DTensor`) within the context,
    and are whole again after it, the same `nn.Parameter` objects as before.

    Args:
        model: the same on all processes.
        sharding: has no effect on one process.
    """
    if world_size() == 1:
        yield Runner()
    elif sharding == "ddp":
        yield _Replica(model)
    else:
        with _sharded(model) as runner:
            yield runner


class _Step(nn.Module):
    """Takes any computation of the model as its forward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[], T]) -> T:
        return function()


class _Replica(Runner):
    """The whole model; gradients are averaged in buckets while the backward pass computes."""

    def __init__(self, model: nn.Module) -> None:
        # The loop keeps buffers equal. torch 2.13 has another name for leaving that to it.
        renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
        own_buffers: dict[str, Any] = {
            "forward_sync_buffers" if renamed else "broadcast_buffers": False
        }
        self.step = DistributedDataParallel(
            _Step(model),
            find_unused_parameters=True,  # tasks differ in the heads that they use
            gradient_as_bucket_view=True,
            **own_buffers,
        )

    def forward(self, function: Callable[[], T]) -> T:
        result: T = self.step(function)
        return result

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        with self.step.no_sync():
            yield


class _Shards(Runner):
    """A part of each tensor; layers are gathered while they compute."""

    def __init__(self, step: _Step, mesh: DeviceMesh) -> None:
        from torch.distributed.fsdp import FSDPModule, fully_shard

        layers = [module for module in step.modules() if isinstance(module, TransformerLayer)]
        for module in (*layers, step):
            fully_shard(module, mesh=mesh)
            assert isinstance(module, FSDPModule)
            if mesh.device_type == "cpu":  # gloo sums but does not average
                module.set_force_sum_reduction_for_comms(True)
        assert isinstance(step, FSDPModule)
        self.step = step

    def forward(self, function: Callable[[], T]) -> T:
        result: T = self.step(function)
        return result

    def evaluate(self, function: Callable[[], T]) -> T:
        with torch.no_grad():
            result: T = self.step(function)
        # What was gathered must not outlive the shards that it was gathered from.
        self.step.reshard()
        return result

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        self.step.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.step.set_requires_gradient_sync(True)


@contextmanager
def _sharded(model: nn.Module) -> Iterator[Runner]:
    from torch.distributed.device_mesh import init_device_mesh

    whole = dict(model.named_parameters())
    undo = _replace_layers(model)
    device = next(iter(whole.values())).device
    runner = _Shards(_Step(model), init_device_mesh(device.type, (world_size(),)))
    for parameter in whole.values():
        parameter.data = parameter.data.new_empty(0)  # the memory that sharding is to save
    try:
        yield runner
        values = {name: full_tensor(shard) for name, shard in model.named_parameters()}
    finally:
        undo()
    for name, parameter in whole.items():
        parameter.data = values[name]


def _replace_layers(model: nn.Module) -> Callable[[], None]:
    """Put a shallow copy in the place of each transformer layer; return what undoes it.

    FSDP2 has no way back: it changes the class of a module and leaves hooks in it. It gets
    these copies, and parameters and hooks of all other modules are restored.
    """
    before = [
        (content, content.copy())
        for module in model.modules()
        for name, content in vars(module).items()
        if isinstance(content, dict) and name != "_buffers"
    ]
    copies: dict[nn.Module, nn.Module] = {}
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, TransformerLayer):
                module._modules[name] = copies.setdefault(child, _shallow_copy(child))

    def undo() -> None:
        for content, earlier in before:
            content.clear()
            content.update(earlier)

    return undo


def _shallow_copy(module: nn.Module) -> nn.Module:
    copied = copy.copy(module)
    for name, content in vars(module).items():
        if isinstance(content, dict):
            vars(copied)[name] = content.copy()
    return copied
