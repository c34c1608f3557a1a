"""Two real processes over gloo against one process with the whole batch."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.errors import PolyglanceError
from polyglance.objectives.nce import nce
from polyglance.training.checkpoints import read_state
from polyglance.training.distributed import (
    average_values,
    broadcast_buffers,
    broadcast_parameters,
    count_weights,
    gather_rows,
    init_distributed,
    on_first_rank,
    rank,
    world_size,
)
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, rank_share

ITEMS = 8


class Towers(nn.Module):
    """Two linear towers that meet in a contrastive loss."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.text, self.visual = (nn.Linear(5, 3).double() for _ in range(2))
        self.norm = nn.BatchNorm1d(3)

    def contrast(self, first: Tensor, second: Tensor) -> Tensor:
        shift = (0.1 * self.text.bias).expand(ITEMS, 3)
        # Transposed twice: what is gathered need not lie in one piece.
        x, v = gather_rows(self.text(first).T.contiguous().T), gather_rows(self.visual(second))
        # One gradient, in one place of memory, goes to the gathered rows and to the shift.
        return nce(x + shift, v)


def own_batch() -> tuple[Tensor, Tensor]:
    """This process's share of a batch that is the same whatever the number of processes."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, ITEMS, 5, generator=generator).double()
    mine = torch.arange(ITEMS).chunk(world_size())[rank()]
    return first[mine], second[mine]


@dataclass(frozen=True, eq=False)
class Points(Batch):
    x: Tensor


class Line(nn.Module):
    """A task and its model: one weight that training moves to 3."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1))

    def sample(self, generator: np.random.Generator) -> Points:
        share = rank_share(ITEMS)
        return Points(torch.tensor(generator.normal(size=(ITEMS, 1)), dtype=torch.float32)[share])

    def losses(self, batch: Points) -> dict[str, Tensor]:
        return {"square": (batch.x @ self.weight - 3 * batch.x).square().mean()}


def train_line(folder: Path) -> dict[str, Any]:
    """Train with three validations, of which the second finds the best state."""
    model, scores, written_by = Line(), iter((1.0, 2.0, 0.5)), list[bool]()
    config = LoopConfig(steps=6, learning_rate=0.1, validate_every=2, save_every=9)

    def validate() -> dict[str, float]:
        written_by.append((folder / "best").exists())
        return {"score": next(scores)}

    result = train_loop(model, Mixture({"line": model}), config, folder, validate=validate)
    written = load_file(folder / "best" / "model.safetensors")["weight"]
    return {
        "best_step": result.best_step, "weight": model.weight.detach(), "written": written,
        "on_disk": read_state(folder / "best")["step"], "written_by": written_by,
    }  # fmt: skip


def fail() -> None:
    raise PolyglanceError("the disk is full")


def one_of_two(number: int, port: int, folder: str) -> None:
    os.environ |= {
        "RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number),
        "CUDA_VISIBLE_DEVICES": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    torch.set_num_threads(1)
    with init_distributed() as mine:
        assert (mine, rank(), world_size()) == (number, number, 2)
        everything: dict[str, Any] = {}
        model = Towers(seed=1 + number)  # begun apart
        broadcast_parameters(model)
        model.norm.running_mean.add_(number)
        broadcast_buffers(model)
        loss = model.contrast(*own_batch())
        loss.backward()
        parameters = [p for p in model.parameters() if p.grad is not None]
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
        everything["loss"] = loss.detach()
        everything["gradients"] = {name: p.grad for name, p in model.named_parameters()}
        everything["mean"] = model.norm.running_mean
        # One process has three masked words, the other one; a loss without a count.
        weights = count_weights({"mlm": 3 - 2 * number, "none": 0}, "cpu")
        everything["weights"] = weights
        own = {
            "mlm": torch.tensor(3.0 - number) * weights["mlm"],
            "itm": torch.tensor(1.0 + number),
        }
        everything["values"] = average_values(own)
        everything["shared"] = on_first_rank(lambda: {"rank": rank()})
        with pytest.raises(PolyglanceError, match=r"^the disk is full$"):
            on_first_rank(fail)
        everything["line"] = train_line(Path(folder) / "run")
        torch.save(everything, Path(folder) / f"{number}.pt")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes computed."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Fresh processes, forked from one that has imported torch once for both.
    mp.set_forkserver_preload([__name__])
    mp.start_processes(one_of_two, (port, str(folder)), nprocs=2, start_method="forkserver")
    return [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(2)]


def test_two_processes_compute_the_gradients_of_one(two: list[dict[str, Any]]) -> None:
    alone = Towers()
    loss = alone.contrast(*own_batch())
    loss.backward()
    for other in two:
        torch.testing.assert_close(other["loss"], loss.detach(), rtol=0, atol=1e-12)
        for name, parameter in alone.named_parameters():
            gradient = other["gradients"][name]
            if parameter.grad is None:
                assert gradient is None
            else:
                torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=1e-12)


def test_means_are_weighted_by_counts(two: list[dict[str, Any]]) -> None:
    """The mean over 3, 3, 3 on one process and 2 on the other is 11 / 4."""
    for other in two:
        assert other["values"] == pytest.approx({"mlm": 11 / 4, "itm": 1.5})
    assert [float(other["weights"]["mlm"]) for other in two] == [1.5, 0.5]
    assert [float(other["weights"]["none"]) for other in two] == [0.0, 0.0]


def test_results_and_buffers_of_the_first_process_are_shared(two: list[dict[str, Any]]) -> None:
    for other in two:
        assert other["shared"] == {"rank": 0}
        assert other["mean"].tolist() == [0.0, 0.0, 0.0]


def test_both_end_with_the_best_state_that_the_first_wrote(two: list[dict[str, Any]]) -> None:
    for own in two:
        assert own["line"]["best_step"] == own["line"]["on_disk"] == 4
        assert torch.equal(own["line"]["weight"], own["line"]["written"])
        # At once: a process that fails may end the one that writes.
        assert own["line"]["written_by"] == [False, True, True]
    assert torch.equal(two[0]["line"]["weight"], two[1]["line"]["weight"])


def test_one_process_keeps_the_best_state_in_memory(tmp_path: Path) -> None:
    line = train_line(tmp_path)
    assert line["written_by"] == [False, False, False]
    assert torch.equal(line["weight"], line["written"])


def test_single_process_needs_no_communication() -> None:
    rows = torch.ones(2, 3)
    with init_distributed() as mine:
        assert mine == 0
        assert gather_rows(rows) is rows
        assert count_weights({"mlm": 3}, "cpu") == {}
        assert average_values({"mlm": torch.tensor(2.0)}) == {"mlm": 2.0}
        with pytest.raises(PolyglanceError, match="the disk is full"):
            on_first_rank(fail)
