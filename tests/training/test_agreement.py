"""One process, two and four train the same weights; a killed one is restarted and does too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from benchmarks.speed import distributed_agreement as agreement
from polyglance.errors import PolyglanceError
from polyglance.training.loop import LoopConfig

Weights = dict[str, dict[str, Tensor]]
STEPS = 10


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Weights]:
    """Each system, trained on one process."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, agreement.train_alone(folder, STEPS)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some runs on two processes; benchmarks/speed/distributed_agreement.py makes all."""
    folder = tmp_path_factory.mktemp("two")
    runs = [("uc2", "ddp"), ("uc2", "fsdp"), ("mmp", "ddp"), ("texts", "ddp")]
    agreement.train_on(2, folder, runs, STEPS)
    return folder


def losses(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_two_processes_train_the_weights_of_one(alone: tuple[Path, Weights], two: Path) -> None:
    folder, weights = alone
    found = agreement.differences(two, weights)
    assert found.keys() == {"uc2 ddp", "uc2 fsdp", "mmp ddp", "texts ddp"}
    assert max(found.values()) < 1e-5
    for run in two.glob("run-*"):
        system = run.name.split("-")[1]
        expected = losses(folder / "one" / system)
        assert len(expected) == STEPS
        for entry, other in zip(expected, losses(run), strict=True):
            assert entry.keys() == other.keys()
            for name in entry.keys() - {"task"}:
                assert other[name] == pytest.approx(entry[name], rel=1e-5), name


def test_weights_moved_far_enough_to_tell(alone: tuple[Path, Weights], tmp_path: Path) -> None:
    """Another seed of the batches, or no training, would not pass for agreement."""
    other = agreement.train_toy("uc2", "ddp", tmp_path, steps=STEPS, seed=1)
    assert agreement.difference_of(other, alone[1]["uc2"]) > 1e-3


def test_four_processes_train_the_weights_of_one(
    alone: tuple[Path, Weights], tmp_path: Path
) -> None:
    agreement.train_on(4, tmp_path, [("uc2", "ddp"), ("mmp", "fsdp")], STEPS)
    found = agreement.differences(tmp_path, alone[1])
    assert found.keys() == {"uc2 ddp", "mmp fsdp"}
    assert max(found.values()) < 1e-5


def test_killed_process_is_restarted_and_ends_with_the_same_weights(
    two: Path, tmp_path: Path
) -> None:
    config = LaunchConfig(  # what torchrun makes of its options
        min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=1, monitor_interval=0.1,
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="killed",
        start_method="forkserver",
    )  # fmt: skip
    mp.set_forkserver_preload(agreement.PRELOAD)
    elastic_launch(config, agreement.run_under_torchrun)(tmp_path, STEPS)
    starts = [json.loads(line) for line in (tmp_path / "starts.jsonl").read_text().splitlines()]
    assert [start["restarts"] for start in starts] == [0, 1]
    for number in range(2):
        name = f"{agreement.KILLED_RUN}-{number}.safetensors"
        expected, found = load_file(two / name), load_file(tmp_path / name)
        for key, value in expected.items():
            assert torch.equal(found[key], value), key
    assert losses(tmp_path / "run") == losses(two / f"run-{agreement.KILLED_RUN}")


def test_run_resumes_on_another_number_of_processes(
    alone: tuple[Path, Weights], two: Path, tmp_path: Path
) -> None:
    """What two processes saved half-way in shards, one process completes."""
    run = two / "run-uc2-fsdp"
    half = run / f"latest-{STEPS // 2:08d}"
    (tmp_path / "run").mkdir()
    half.rename(tmp_path / "run" / "latest")
    try:
        weights = agreement.train_toy("uc2", "ddp", tmp_path / "run", steps=STEPS)
    finally:
        (tmp_path / "run" / half.name).rename(half)
    assert agreement.difference_of(weights, alone[1]["uc2"]) < 1e-5


def test_unknown_sharding_is_rejected() -> None:
    from polyglance.config import load

    with pytest.raises(PolyglanceError, match="sharding"):
        load(LoopConfig, {"sharding": "zero"})
