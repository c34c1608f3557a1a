"""Two real processes over gloo against one process with the whole batch."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.objectives.nce import nce
from polyglance.training.distributed import (
    average_gradients,
    gather_rows,
    init_distributed,
    rank,
    shard_for_rank,
    world_size,
)
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

ITEMS, CONFIG = 8, LoopConfig(steps=12, learning_rate=0.05, grad_clip=0.5, weight_decay=0.1)


class Towers(nn.Module):
    """Two linear towers that meet in a contrastive loss: a model and its task in one."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.text, self.visual, self.unused = (nn.Linear(5, 3).double() for _ in range(3))

    def contrast(self, first: Tensor, second: Tensor) -> Tensor:
        shift = (0.1 * self.text.bias).expand(ITEMS, 3)
        # Transposed twice: what is gathered need not lie in one piece.
        x, v = gather_rows(self.text(first).T.contiguous().T), gather_rows(self.visual(second))
        # One gradient, in one place of memory, goes to the gathered rows and to the shift.
        return nce(x + shift, v)

    def sample(self, generator: np.random.Generator) -> Batch:
        return Batch()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Of this process's share of a batch that is the same whatever the number of processes."""
        return {"inter": self.contrast(*own_batch())}


def own_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, ITEMS, 5, generator=generator).double()
    mine = torch.arange(ITEMS).chunk(world_size())[rank()]
    return first[mine], second[mine]


def one_of_two(number: int, port: int, folder: str) -> None:
    os.environ |= {
        "RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number),
        "CUDA_VISIBLE_DEVICES": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    torch.set_num_threads(1)
    with init_distributed() as mine:
        assert (mine, rank(), world_size()) == (number, number, 2)
        everything = {"share": shard_for_rank(np.arange(9)).tolist()}
        model = Towers()
        loss = model.contrast(*own_batch())
        loss.backward()
        average_gradients(model.parameters())
        everything["loss"] = loss.detach()
        everything["gradients"] = {name: p.grad for name, p in model.named_parameters()}
        # Begun apart, to be brought together by the loop itself.
        trained = Towers(seed=1 + number)
        train_loop(
            trained, Mixture({"pairs": trained}), CONFIG, Path(folder) / "run", validate=validate
        )
        everything["weights"] = trained.state_dict()
        torch.save(everything, Path(folder) / f"{number}.pt")


def validate() -> dict[str, float]:
    return {"score": 1.0}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that two processes wrote what they computed to."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Fresh processes, forked from one that has imported torch once for both.
    mp.set_forkserver_preload([__name__])
    mp.start_processes(one_of_two, (port, str(folder)), nprocs=2, start_method="forkserver")
    return folder


def test_two_processes_compute_the_gradients_of_one(two: Path) -> None:
    alone = Towers()
    loss = alone.contrast(*own_batch())
    loss.backward()
    for number in range(2):
        other = torch.load(two / f"{number}.pt", weights_only=True)
        torch.testing.assert_close(other["loss"], loss.detach(), rtol=0, atol=1e-12)
        for name, parameter in alone.named_parameters():
            gradient = other["gradients"][name]
            if parameter.grad is None:
                assert gradient is None
            else:
                torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=1e-12)


def test_two_processes_train_the_same_model_as_one(two: Path, tmp_path: Path) -> None:
    alone = Towers()
    begin = alone.text.weight.detach().clone()
    train_loop(alone, Mixture({"pairs": alone}), CONFIG, tmp_path, validate=validate)
    assert (alone.text.weight - begin).abs().max() > 0.1
    for number in range(2):
        weights = torch.load(two / f"{number}.pt", weights_only=True)["weights"]
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-9)
    logs = [(folder / "log.jsonl").read_text().splitlines() for folder in (tmp_path, two / "run")]
    one, other = ([json.loads(line) for line in log] for log in logs)
    assert [entry["step"] for entry in one] == [entry["step"] for entry in other] == [12, 12]
    assert one[0]["inter"] == pytest.approx(other[0]["inter"])


def test_shards_are_disjoint(two: Path) -> None:
    shares = [torch.load(two / f"{n}.pt", weights_only=True)["share"] for n in range(2)]
    assert shares == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_single_process_needs_no_communication() -> None:
    rows = torch.ones(2, 3)
    parameter = nn.Parameter(rows)
    parameter.grad = torch.full((2, 3), 2.0)
    with init_distributed() as mine:
        assert mine == 0
        assert gather_rows(rows) is rows
        assert shard_for_rank(np.arange(3)).tolist() == [0, 1, 2]
        average_gradients([parameter])
    assert torch.equal(parameter.grad, torch.full((2, 3), 2.0))
