"""Batches sampled ahead change nothing but the speed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.errors import PolyglanceError
from polyglance.training import mixture as mixture_module
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, item_draws, rank_share, step_of
from polyglance.training.prefetch import Prefetcher


@dataclass(frozen=True, eq=False)
class Numbers(Batch):
    step: int
    x: Tensor
    thread: str


class Noisy(nn.Module):
    """A task with dropout, which notes what it sampled."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.dropout = nn.Linear(3, 1), nn.Dropout(0.3)
        self.fail_at, self.sampled = fail_at, list[int]()

    def sample(self, generator: np.random.Generator) -> Numbers:
        step = step_of(generator)
        if step == self.fail_at:
            raise PolyglanceError("shard 7 is damaged; delete it")
        self.sampled.append(step)
        x = torch.from_numpy(generator.normal(size=(8, 3))).float()
        return Numbers(step, x, threading.current_thread().name)

    def losses(self, batch: Numbers) -> dict[str, Tensor]:
        return {"square": (self.layer(self.dropout(batch.x)) - batch.x.sum()).square().mean()}


def trained(folder: Path, depth: int) -> Tensor:
    model = Noisy()
    config = LoopConfig(steps=12, learning_rate=0.1, grad_accumulation_steps=2)
    train_loop(model, Mixture({"a": model}), config, folder, prefetch=depth, quiet=True)
    return model.layer.weight.detach()


def test_weights_do_not_depend_on_the_depth(tmp_path: Path) -> None:
    at_once, ahead = (trained(tmp_path / str(depth), depth) for depth in (0, 3))
    assert torch.equal(at_once, ahead)


def test_batches_come_in_order_from_another_thread_and_no_further_than_the_depth() -> None:
    task = Noisy()
    with Prefetcher(Mixture({"a": task}), range(5, 40), seed=0, depth=2) as batches:
        taken = [next(batches).batch for _ in range(3)]
        assert [batch.step for batch in taken] == [5, 6, 7]
        assert {batch.thread for batch in taken} == {"prefetch"}
    # One waits in the queue, one to be copied, and one is sampled while they do.
    assert task.sampled == list(range(5, 5 + len(task.sampled)))
    assert len(task.sampled) <= 3 + 2 + 1
    with Prefetcher(Mixture({"a": task}), range(2), seed=0, depth=1) as batches:
        assert [prepared.name for prepared in batches] == ["a", "a"]


@pytest.mark.parametrize("depth", [0, 3])
def test_errors_surface_in_the_training_loop(tmp_path: Path, depth: int) -> None:
    model = Noisy(fail_at=4)
    config = LoopConfig(steps=9, save_every=1)
    with pytest.raises(PolyglanceError, match="shard 7 is damaged; delete it"):
        train_loop(model, Mixture({"a": model}), config, tmp_path, prefetch=depth, quiet=True)
    assert threading.active_count() == 1 or "prefetch" not in {
        thread.name for thread in threading.enumerate()
    }


@dataclass(frozen=True)
class Nested(Batch):
    step: int
    parts: tuple[Stored, ...]


@dataclass(frozen=True)
class Stored(Batch):
    reads: tuple[Disk, ...]


class Disk:
    """Reads that end when the next batch is sampled, as if a disk were busy until then."""

    def __init__(self, damaged: bool) -> None:
        self.damaged, self.over, self.waited = damaged, threading.Event(), False

    def wait(self) -> None:
        assert self.over.wait(10), "nothing is sampled while the disk reads"
        self.waited = True
        if self.damaged:
            raise PolyglanceError("shard 3 is cut off")


class FromDisk(nn.Module):
    def __init__(self, damaged: int) -> None:
        super().__init__()
        self.damaged, self.last = damaged, Disk(False)

    def sample(self, generator: np.random.Generator) -> Nested:
        self.last.over.set()
        step = step_of(generator)
        self.last = Disk(step == self.damaged)
        if step == 3:
            self.last.over.set()
        return Nested(step, (Stored((self.last,)),))

    def losses(self, batch: Nested) -> dict[str, Tensor]:
        raise NotImplementedError


def test_the_next_batch_is_sampled_while_one_is_read() -> None:
    task = FromDisk(damaged=2)
    with Prefetcher(Mixture({"a": task}), range(4), seed=0, depth=2) as batches:
        for step in range(2):
            batch = next(batches).batch
            assert isinstance(batch, Nested)
            assert batch.step == step
            assert batch.parts[0].reads[0].waited
        with pytest.raises(PolyglanceError, match="shard 3 is cut off"):
            next(batches)


def test_an_error_comes_after_the_batches_before_it() -> None:
    task = Noisy(fail_at=2)
    with Prefetcher(Mixture({"a": task}), range(4), seed=0, depth=3) as batches:
        taken = [next(batches).batch for _ in range(2)]
        assert [batch.step for batch in taken] == [0, 1]  # type: ignore[attr-defined]
        with pytest.raises(PolyglanceError, match="shard 7"):
            next(batches)


def test_shares_of_processes_are_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def share(number: int, size: int, count: int) -> tuple[list[int], list[float]]:
        monkeypatch.setattr(mixture_module, "rank", lambda: number)
        monkeypatch.setattr(mixture_module, "world_size", lambda: size)
        part = rank_share(count)
        draws = item_draws(np.random.default_rng(3), count, part)
        return list(range(count))[part], draws.per_item("a").tolist()

    whole = share(0, 1, 10)
    for size in (2, 3, 4):
        parts = [share(number, size, 10) for number in range(size)]
        assert [item for items, _ in parts for item in items] == whole[0]
        assert [draw for _, draws in parts for draw in draws] == whole[1]
    with pytest.raises(PolyglanceError, match="set batch to a multiple of 4"):
        rank_share(10, equal=True)
    with pytest.raises(PolyglanceError, match="a batch of 3 cannot be split over 4"):
        share(0, 4, 3)
