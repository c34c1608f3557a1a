"""A small model whose checkpoints are saved."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from polyglance.training.checkpoints import (
    save_checkpoint,
)


class Pair(nn.Module):
    """Two layers, the second known by two names, and a buffer."""

    def __init__(self, seed: int, width: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(3, width), nn.Linear(width, 3)
        self.again = self.second
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.again(self.first(x)))


def optimiser_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)


def step(model: Pair, optimiser: torch.optim.Optimizer) -> None:
    model(torch.randn(5, 3, generator=torch.Generator().manual_seed(9))).square().sum().backward()
    optimiser.step()
    optimiser.zero_grad()


def save(
    folder: Path, seed: int = 0, number: int = 1, keep: int = 1
) -> tuple[Pair, torch.optim.Optimizer]:
    model = Pair(seed)
    optimiser = optimiser_of(model)
    step(model, optimiser)
    save_checkpoint(folder, model, optimiser, {"step": number}, keep=keep)
    return model, optimiser


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
