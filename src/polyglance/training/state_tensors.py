"""The tensors of a model and its optimiser by name: whole and on the CPU, and back.

Sharded tensors are gathered, so that what was saved fits any number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from polyglance.nn.pretrained import distinct_tensors
from polyglance.training.distributed import full_tensor, is_sharded, rank, shard_like


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict with tied tensors once; shards are tied if they are one object."""
    if not any(is_sharded(parameter) for parameter in model.parameters()):
        return distinct_tensors(model)
    names: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, value in state.items():
        names.setdefault(id(value), name)
    return {name: state[name] for name in names.values()}


def gather_tensors(tensors: Mapping[str, Tensor], *, copy: bool = False) -> dict[str, Tensor]:
    """Return whole tensors on the CPU of the first process, nothing on the others.

    With ``copy`` they share no memory with those of the model.
    """
    gathered = {}
    for name, value in tensors.items():
        if rank() == 0 or is_sharded(value):
            whole = full_tensor(value)
            if rank() == 0:
                gathered[name] = whole.contiguous().to("cpu", copy=copy)
    return gathered


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimiser's state by parameter name.

    PyTorch numbers parameters instead, which would shift with every frozen one.
    """
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def fill_model(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load tensors by name; raises ValueError for those that do not match the model's."""
    own = model.state_dict(keep_vars=True)
    prepared = {
        name: shard_like(value, own[name]) if name in own else value
        for name, value in tensors.items()
    }
    # Tied parameters are stored once; all other names must match.
    missing, unexpected = model.load_state_dict(prepared, strict=False)
    lacking = [name for name in missing if name in model_tensors(model)]
    if lacking or unexpected:
        raise ValueError(f"{(lacking + unexpected)[0]} does not match the model")


def fill_optimiser(
    optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Load what `optimiser_tensors` returned."""
    named = dict(model.named_parameters())
    names = {parameter: name for name, parameter in named.items()}
    trainable = [p for group in optimiser.param_groups for p in group["params"]]
    numbers = {names[parameter]: number for number, parameter in enumerate(trainable)}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, key = full_name.split("/")
        # Moments have the parameter's shape; the number of steps is one number.
        moment = shard_like(value, named[name]) if key != "step" else value
        state.setdefault(numbers[name], {})[key] = moment
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def count_bytes(
    model: nn.Module, optimiser: torch.optim.Optimizer, average: Mapping[str, Tensor] | None
) -> int:
    """Return the memory of all tensors that a checkpoint holds, whole."""
    tensors = [*model_tensors(model).values(), *optimiser_tensors(optimiser, model).values()]
    tensors += [] if average is None else average.values()
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
