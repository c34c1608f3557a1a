"""Two real processes over gloo against one process with the whole batch."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from polyglance.objectives.nce import nce
from polyglance.training.distribution import gather_rows, joined, processes, rank


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(0)).double()
    return first, second


def towers() -> torch.nn.ModuleDict:
    torch.manual_seed(1)
    names = ("text", "visual")
    return torch.nn.ModuleDict({name: torch.nn.Linear(5, 3).double() for name in names})


class Both(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.towers = towers()

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        x, v = gather_rows(self.towers["text"](first)), gather_rows(self.towers["visual"](second))
        return nce(x, v)


def one_of_two(number: int, port: int, folder: str) -> None:
    os.environ |= {
        "RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    torch.set_num_threads(1)
    with joined() as mine:
        assert (mine, rank(), processes()) == (number, number, 2)
        model = DistributedDataParallel(Both())
        first, second = (part.chunk(2)[number] for part in batch())
        loss = model(first, second)
        loss.backward()
        gradients = {name: p.grad for name, p in model.module.named_parameters()}
        torch.save((loss.detach(), gradients), Path(folder) / f"{number}.pt")


def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(one_of_two, (port, str(tmp_path)), nprocs=2)
    alone = Both()
    loss = alone(*batch())
    loss.backward()
    for number in range(2):
        other_loss, gradients = torch.load(tmp_path / f"{number}.pt", weights_only=True)
        torch.testing.assert_close(other_loss, loss.detach(), rtol=0, atol=1e-12)
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=1e-12)


def test_alone_nothing_is_gathered() -> None:
    rows = torch.ones(2, 3)
    with joined() as mine:
        assert mine == 0
        assert gather_rows(rows) is rows
