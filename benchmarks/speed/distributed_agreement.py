"""Do one, two and four processes train the same weights, as replicas (DDP) and in shards (FSDP2)?

Small models of UC2 (MLM, ITM and MRTM drawn in turn, gradients accumulated, weights averaged)
and of MMP (contrastive, captions in two languages; also texts alone, beside vectors of pictures
that stay as they are) are trained with the same global batch on the
CPU, over gloo; shards also compute activations again in the backward pass. Then a process is
killed in the middle (SIGKILL) and ``torchrun`` restarts it.

    python -m benchmarks.speed.distributed_agreement

Writes results/distributed_agreement.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.results_io import ROOT, write_results
from polyglance.batches.inputs import FeatureTable, VectorTable
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.fine_tune.tasks import KeptPicturesTask
from polyglance.recipes.mmp.tasks import MMPTask
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.recipes.uc2.tasks import ImageTextCorpus, ITMTask, MLMTask, MRTMTask
from polyglance.records import Record
from polyglance.training.distributed import init_distributed, rank, world_size
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, Task
from polyglance.training.parallel import Sharding

System = Literal["uc2", "mmp", "texts"]
SYSTEMS: tuple[System, ...] = ("uc2", "mmp", "texts")
Run = tuple[System, Sharding]
RUNS: tuple[Run, ...] = (
    ("uc2", "ddp"), ("uc2", "fsdp"), ("mmp", "ddp"), ("mmp", "fsdp"), ("texts", "ddp"),
    ("texts", "fsdp"),
)  # fmt: skip
STEPS = 20
KILLED_RUN = "uc2-ddp"
BATCH = 8
"""Of all processes together."""
_IMAGES, _WORDS, _VISUAL_WIDTH, _LABELS = 40, 60, 12, 10
_MASK = 3
_MODULE = "benchmarks.speed.distributed_agreement"
PRELOAD = [_MODULE, "torch._dynamo", "torch.distributed.fsdp"]
"""What processes import before they are forked."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        figures: dict[str, Any] = {"steps": STEPS, "batch": BATCH, "largest_difference": {}}
        alone = train_alone(folder)
        for count in options.ranks:
            train_on(count, folder / str(count))
            for name, difference in differences(folder / str(count), alone).items():
                figures["largest_difference"][f"{name}, {count} processes"] = difference
                print(f"{name}, {count} processes: {difference}", flush=True)
        figures["killed"] = kill(folder / "2", folder / "killed")
        print(f"killed and restarted: {figures['killed']}", flush=True)
    write_results("distributed_agreement", figures, options.out)


def train_alone(folder: Path, steps: int = STEPS) -> dict[str, dict[str, Tensor]]:
    """Return the weights of each system trained on one process."""
    return {
        system: train_toy(system, "ddp", folder / "one" / system, steps=steps) for system in SYSTEMS
    }


def train_on(count: int, folder: Path, runs: Sequence[Run] = RUNS, steps: int = STEPS) -> None:
    """Train systems on several processes; each writes its weights to the folder.

    Args:
        count: The number of processes.
        folder: Receives ``uc2-ddp-0.safetensors`` and so on.
        runs: What to train, and how.
        steps: How long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Fresh processes, forked from one that has imported torch once for all of them.
    mp.set_forkserver_preload(PRELOAD)
    mp.start_processes(
        _train_on_one,
        (count, port, folder, tuple(runs), steps),
        nprocs=count,
        start_method="forkserver",
    )


def _train_on_one(
    number: int, count: int, port: int, folder: Path, runs: tuple[Run, ...], steps: int
) -> None:
    os.environ |= {
        "RANK": str(number), "WORLD_SIZE": str(count), "LOCAL_RANK": str(number),
        "CUDA_VISIBLE_DEVICES": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    torch.set_num_threads(1)
    with init_distributed():
        for system, sharding in runs:
            name = f"{system}-{sharding}"
            weights = train_toy(system, sharding, folder / f"run-{name}", steps=steps)
            save_file(weights, folder / f"{name}-{number}.safetensors")


def differences(folder: Path, expected: dict[str, dict[str, Tensor]]) -> dict[str, float]:
    """Return how far any weight of any process is from those of one process, by run."""
    largest: dict[str, float] = {}
    for path in sorted(folder.glob("*.safetensors")):
        system, sharding, _ = path.stem.split("-")
        name = f"{system} {sharding}"
        difference = difference_of(load_file(path), expected[system])
        largest[name] = max(largest.get(name, 0.0), difference)
    return largest


def difference_of(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return how far any weight is from the expected one."""
    return max(float((weights[name] - value).abs().max()) for name, value in expected.items())


def kill(undisturbed: Path, folder: Path) -> dict[str, Any]:
    """Kill a process of a run under torchrun, which restarts it.

    Args:
        undisturbed: What `train_on` wrote for two processes.
        folder: Of the run.

    Returns:
        Whether it ends with the undisturbed run's weights, to the bit, and each start.
    """
    arguments = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.1"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments, "-m", _MODULE, str(folder)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"torchrun ended with {done.returncode}: {done.stderr}")
    names = [f"{KILLED_RUN}-{number}.safetensors" for number in range(2)]
    pairs = [(load_file(folder / name), load_file(undisturbed / name)) for name in names]
    same = all(torch.equal(one[name], other[name]) for one, other in pairs for name in other)
    starts = [json.loads(line) for line in (folder / "starts.jsonl").read_text().splitlines()]
    return {"in_step": killed_in(STEPS), "same_weights": same, "starts": starts}


def killed_in(steps: int) -> int:
    """Return the step in which a process is killed: after the run was saved half-way."""
    return 2 * steps // 3


def run_under_torchrun(folder: Path, steps: int = STEPS) -> None:
    """Train UC2; the second process kills itself in its first life."""
    torch.set_num_threads(1)
    with init_distributed():
        restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        if rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "starts.jsonl").open("a") as out:
                out.write(json.dumps({"restarts": restarts, "processes": world_size()}) + "\n")
        dies = rank() == 1 and restarts == 0
        step = killed_in(steps) if dies else None
        weights = train_toy("uc2", "ddp", folder / "run", steps=steps, kill_in=step)
        save_file(weights, folder / f"{KILLED_RUN}-{rank()}.safetensors")


def train_toy(
    system: System,
    sharding: Sharding,
    folder: Path,
    *,
    steps: int = STEPS,
    seed: int = 0,
    kill_in: int | None = None,
) -> dict[str, Tensor]:
    """Train a small model; return its weights.

    Args:
        system: One of `SYSTEMS`.
        sharding: On several processes, how.
        folder: Run folder.
        steps: How long; the run is saved half-way.
        seed: Of the batches.
        kill_in: The step in which this process kills itself; None for never.
    """
    model, mixture, changes = _TOYS[system]()
    if kill_in is not None:
        mixture = Mixture({name: _Deadly(task, kill_in) for name, task in mixture.tasks.items()})
    config = LoopConfig(
        steps=steps, learning_rate=1e-3, warmup=4, weight_decay=0.01, grad_clip=1.0, log_every=1,
        save_every=steps // 2, sharding=sharding, seed=seed,
        gradient_checkpointing=sharding == "fsdp", **changes,
    )  # fmt: skip
    train_loop(model, mixture, config, folder, quiet=True)
    return {name: value.detach().clone() for name, value in model.named_parameters()}


class _Deadly:
    """Wraps a task of a process that dies in a step."""

    calls = 0

    def __init__(self, task: Task, step: int) -> None:
        self.task, self.step = task, step

    def sample(self, generator: np.random.Generator) -> Any:
        return self.task.sample(generator)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        _Deadly.calls += 1
        if _Deadly.calls > 2 * self.step:  # two batches a step
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task.losses(batch)


def _uc2() -> tuple[nn.Module, Mixture, dict[str, Any]]:
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 6, _IMAGES)
    features = torch.from_numpy(generator.normal(size=(lengths.sum(), _VISUAL_WIDTH))).float()
    boxes = torch.from_numpy(np.sort(generator.random((lengths.sum(), 2, 2)), axis=1)).float()
    labels = torch.from_numpy(generator.integers(_LABELS, size=lengths.sum()))
    regions = RegionTable(features, boxes.flatten(1), labels, lengths)
    corpus = ImageTextCorpus(regions, LanguageBalancedSampler(_captions(generator)))
    names = [f"w{number} w{number + 20}" for number in range(_LABELS)]
    tokens = LabelTokens({"en": names, "de": names[::-1]}, _Words())
    torch.manual_seed(0)
    model = UC2(UC2Config(_encoder(), _VISUAL_WIDTH, variant="reference"))
    _enlarge(model)
    masking = TokenMasking(_MASK, (4, _WORDS), rate=0.3)
    tasks: dict[str, Task] = {
        "mlm": MLMTask(model, corpus, masking, batch=BATCH),
        "itm": ITMTask(model, corpus, batch=BATCH),
        "mrtm": MRTMTask(model, corpus, tokens, batch=BATCH, rate=0.3),
    }
    return model, Mixture(tasks), {"ema_decay": 0.9, "grad_accumulation_steps": 2}


def _mmp() -> tuple[nn.Module, Mixture, dict[str, Any]]:
    generator = np.random.default_rng(1)
    lengths = generator.integers(2, 5, _IMAGES)
    features = torch.from_numpy(generator.normal(size=(lengths.sum(), _VISUAL_WIDTH))).float()
    model = _mmp_model()
    objective = MMPObjective(cross=True, mask_id=_MASK)
    captions = _captions(generator)
    task = MMPTask(
        model,
        FeatureTable(features, lengths),
        captions,
        objective,
        batch=BATCH,
        captions_per_image=2,
    )
    return model, Mixture({"contrastive": task}), {}


def _texts() -> tuple[nn.Module, Mixture, dict[str, Any]]:
    """MMP's text side beside vectors of pictures that stay as they are."""
    generator = np.random.default_rng(2)
    model = _mmp_model()
    for part in (model.visual_input, model.visual_pooling):
        part.requires_grad_(False)
    vectors = F.normalize(torch.from_numpy(generator.normal(size=(_IMAGES, 16))).float())
    task = KeptPicturesTask(
        model,
        VectorTable(vectors, torch.device("cpu")),
        _captions(generator),
        MMPObjective(negatives="symmetric", intra=False),
        batch=BATCH,
        captions_per_image=2,
    )
    return model, Mixture({"captions": task}), {}


def _mmp_model() -> MMP:
    torch.manual_seed(0)
    model = MMP(
        MMPConfig(
            _encoder(), text_layer=None, frozen_layers=1, visual_width=_VISUAL_WIDTH, width=16,
            pooling_layers=1, pooling_heads=2, dropout=0.0, share_pooling=True,
        )
    )  # fmt: skip
    _enlarge(model)
    return model


_TOYS: dict[System, Callable[[], tuple[nn.Module, Mixture, dict[str, Any]]]] = {
    "uc2": _uc2,
    "mmp": _mmp,
    "texts": _texts,
}


def _encoder() -> EncoderConfig:
    return EncoderConfig(
        vocab_size=_WORDS, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32,
        max_position_embeddings=20, dropout=0.0,
    )  # fmt: skip


def _enlarge(model: nn.Module) -> None:
    """Draw larger weights, so that every layer matters."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.2)


def _captions(generator: np.random.Generator) -> CaptionTable:
    def sentence() -> str:
        words = generator.integers(4, _WORDS, generator.integers(3, 10))
        return " ".join(f"w{word}" for word in words)

    records = [
        Record(captions={code: (sentence(), sentence()) for code in ("en", "de")}, id=str(number))
        for number in range(_IMAGES)
    ]
    return CaptionTable.build(records, _Words())


class _Words:
    """A tokenizer of words such as w12, between two special tokens."""

    def encode_batch(
        self, texts: Sequence[str], *, add_special_tokens: bool = True
    ) -> list[list[int]]:
        plain = [[int(word[1:]) for word in text.split()] for text in texts]
        return [[0, *ids, 2] for ids in plain] if add_special_tokens else plain


if __name__ == "__main__":
    if "TORCHELASTIC_RESTART_COUNT" in os.environ:
        run_under_torchrun(Path(sys.argv[1]))
    else:
        main()
