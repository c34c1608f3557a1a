"""Gradient reversal (Ganin et al. 2016): identity forwards, negated gradient backwards.

Layers before it learn to mislead the classifier behind it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def reverse_gradient(rows: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """Return ``rows`` unchanged; their gradient is multiplied by ``-strength``."""
    reversed_: Tensor = _Reverse.apply(rows, strength)  # type: ignore[no-untyped-call]
    return reversed_


class ReversalSchedule(nn.Module):
    """The strength of reversal over training: ``2 / (1 + e^(-10 p)) - 1``.

    ``p`` runs from 0 at the first step to 1 at the last. Steps are counted in a buffer, so
    that checkpoints keep the count and no step waits for the accelerator.
    """

    steps_taken: Tensor

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.int64))

    def forward(self) -> Tensor:
        """Return the strength at this step; in training mode each call is one step."""
        share = (self.steps_taken / max(1, self.steps)).clamp(max=1.0)
        if self.training:
            self.steps_taken += 1
        return 2 / (1 + torch.exp(-10 * share)) - 1


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, strength: float | Tensor) -> Tensor:
        ctx.strength = strength
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * -ctx.strength, None
