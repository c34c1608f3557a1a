"""What is trained: the optimiser of named parameter groups, and what belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from polyglance.errors import PolyglanceError
from polyglance.training.distributed import is_sharded, local_part

NamedGroups = list[tuple[list[str], float]]
"""Names of parameters and their learning-rate multiplier, group after group."""


def name_groups(
    model: nn.Module, param_groups: Iterable[dict[str, Any]] | None = None
) -> NamedGroups:
    """Return the names of trainable parameters by group, which sharding does not change.

    Args:
        model: Has the parameters.
        param_groups: ``params`` and ``lr_multiplier`` (1 by default) of each group; None for
            one group of all parameters.
    """
    if param_groups is None:
        param_groups = [{"params": list(model.parameters())}]
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [
        ([names[p] for p in group["params"] if p.requires_grad], group.get("lr_multiplier", 1.0))
        for group in param_groups
    ]


def build_optimiser(
    model: nn.Module,
    groups: NamedGroups,
    *,
    learning_rate: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Build AdamW; groups keep ``lr_multiplier``, by which the loop sets their learning rate.

    Args:
        model: Has the parameters.
        groups: Names of parameters, each with a learning-rate multiplier.
        learning_rate: Before it is multiplied.
        betas: Decay of the moments.
        weight_decay: Of matrices; on biases and norms (vectors) it does not help.
    """
    parameters = dict(model.named_parameters())
    prepared = []
    for names, multiplier in groups:
        for decays in (True, False):
            members = [parameters[n] for n in names if (parameters[n].ndim >= 2) == decays]
            decay = weight_decay if decays else 0.0
            if members:
                prepared.append(
                    {"params": members, "lr_multiplier": multiplier, "weight_decay": decay}
                )
    first = next(model.parameters())
    # One operation for all shards: dispatching each costs more than computing it.
    fused = first.is_cuda or is_sharded(first)
    return torch.optim.AdamW(prepared, lr=learning_rate, betas=betas, fused=fused)


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """Scale gradients down to a norm of at most ``max_norm``; return their norm before.

    Of sharded gradients each process adds up its own part, and one number is exchanged.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not any(is_sharded(gradient) for gradient in gradients):
        return nn.utils.clip_grad_norm_(parameters, max_norm)
    parts = [local_part(gradient) for gradient in gradients]
    squares = torch.stack(torch._foreach_norm(parts)).square().sum()
    dist.all_reduce(squares)
    norm = squares.sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as torch has it
    torch._foreach_mul_(parts, scale)
    return norm


@contextmanager
def freeze_others(model: nn.Module, groups: NamedGroups) -> Iterator[None]:
    """Compute no gradients for parameters that no group has, within the context."""
    trained = {name for names, _ in groups for name in names}
    others = [p for name, p in model.named_parameters() if name not in trained and p.requires_grad]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)


@contextmanager
def gradient_checkpointing(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Let the model's encoders compute their layers again in the backward pass."""
    encoders = [module for module in model.modules() if hasattr(module, "gradient_checkpointing")]
    if wanted and not encoders:
        raise PolyglanceError(
            "gradient_checkpointing is for models with a transformer, and this one has none: set"
            " loop.gradient_checkpointing to false"
        )
    before = [encoder.gradient_checkpointing for encoder in encoders]
    for encoder, value in zip(encoders, before, strict=True):
        encoder.gradient_checkpointing = wanted or value  # type: ignore[assignment]
    try:
        yield
    finally:
        for encoder, value in zip(encoders, before, strict=True):
            encoder.gradient_checkpointing = value
