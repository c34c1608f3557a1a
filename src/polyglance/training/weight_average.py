"""An exponential moving average of the weights (EMA), which is evaluated instead of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from polyglance.training.distributed import local_part


class WeightAverage:
    """Averages the trained weights of a model over the steps."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begin with the model's weights; ``decay`` is the share of the average that stays."""
        self.model, self.decay = model, decay
        self.values: dict[str, Tensor] = {
            name: parameter.detach().clone()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the weights after step ``step``, counted from 1.

        Early on the average is over fewer steps, ``(1 + step) / (10 + step)`` of it staying:
        otherwise a short run would keep the weights that it began with.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        averages, weights = self._pairs()
        torch._foreach_lerp_(averages, weights, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Exchange the model's weights for their average within the context."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchange the model's weights and their average, in place."""
        for average, weight in zip(*self._pairs(), strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def _pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        weights = dict(self.model.named_parameters())
        averages = [local_part(average) for average in self.values.values()]
        return averages, [local_part(weights[name]) for name in self.values]
