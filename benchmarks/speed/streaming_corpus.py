"""Train UC2 from a corpus on disk that is larger than memory, killed once and resumed.

The corpus is synthetic and has the shape of Conceptual Captions: images of 36 regions (int8 with a
scale a vector, boxes, labels) in a feature store, captions in six languages in memory-mapped
files. Training is UC2's pre-training with the settings of the recipe uc2-conceptual-captions, with
random weights of XLM-R base's shape, in the library's own loop. Half of the time is up when the
process is killed (SIGKILL); another one resumes and trains on for the other half.

    python -m benchmarks.speed.streaming_corpus --corpus DIR                # writes 40 GB once
    python -m benchmarks.speed.streaming_corpus --corpus DIR --resident     # interleaved with
                                                            # the same batches on the device
    python -m benchmarks.speed.streaming_corpus --tiny                      # any machine

Writes results/streaming_corpus.json, or results/streaming_corpus_resident.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.results_io import ROOT, write_results
from benchmarks.speed.cross_encoder_step import NUM_LABELS, RandomTokenizer
from benchmarks.speed.synthetic_corpus import LANGUAGES, Sizes, align_half, write_corpus
from polyglance.batches.batch import Batch
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.data.caption_files import open_captions
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.transformer import compile_layers
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler, Streaming
from polyglance.recipes.stages import stage_loop
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.recipes.uc2.tasks import ImageTextCorpus, ITMTask, MLMTask, MRTMTask, VTLMTask
from polyglance.training.loop import train_loop
from polyglance.training.loop_config import LoopConfig
from polyglance.training.mixture import Mixture, Task, seed_torch
from polyglance.training.prefetch import Prefetcher, PreparedBatch
from polyglance.vision.store import shard_count
from polyglance.vision.store_reader import StoreReader

RECIPE = "uc2-conceptual-captions"
ROUNDS, STEPS_A_ROUND = 3, 64
STEPS_AHEAD = 16
"""Steps of a round that are not timed: batches prefetched before it would hide a slow disk."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="folder of the corpus; written if missing")
    parser.add_argument("--gigabytes", type=float, default=40, help="size of the regions")
    parser.add_argument("--minutes", type=float, default=5, help="of training")
    parser.add_argument(
        "--resident", action="store_true", help="compare with batches on the device"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; writes no results")
    parser.add_argument("--save-every", type=int, default=500, help="steps between checkpoints")
    parser.add_argument("--no-compile", action="store_true", help="do not compile layers")
    parser.add_argument("--run", type=Path, help="run folder; a temporary one by default")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = Sizes.tiny() if options.tiny else Sizes.of(options.gigabytes)
    if options.tiny:
        options.minutes, options.save_every = min(options.minutes, 0.3), 5
    if options.worker:
        train_until(options, sizes)
        return
    with tempfile.TemporaryDirectory() as scratch:
        options.corpus = options.corpus or Path(scratch) / "corpus"
        options.run = options.run or Path(scratch) / "run"
        seconds = write_corpus(options.corpus, sizes)
        shape = {"images": sizes.images, "regions": sizes.regions, "width": sizes.width}
        figures = {"corpus": {**shape, "languages": len(LANGUAGES), "write_seconds": seconds}}
        if options.resident:
            figures |= compare(options, sizes)
            name = "streaming_corpus_resident"
        else:
            figures |= train_killed_and_resumed(options)
            name = "streaming_corpus"
    print(json.dumps(figures, indent=2))
    if not options.tiny:
        write_results(name, {**figures, "torch": torch.__version__}, options.out)


# Training


def build(options: argparse.Namespace, sizes: Sizes) -> tuple[UC2, dict[str, Task]]:
    """Open the corpus and build the model and the four objectives."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    recipe = _recipe()
    reader = StoreReader(options.corpus / "regions")
    regions = StreamedRegions([(reader, np.arange(len(reader)))], device=device)
    captions = open_captions(options.corpus / "captions")
    assert captions is not None
    if not shard_count(reader.info) or captions.num_records != len(regions):
        raise SystemExit(f"{options.corpus} is of another size: delete it, or name another folder")
    torch.manual_seed(0)
    model = UC2(UC2Config(sizes.encoder, sizes.width)).to(device)
    if device == "cuda" and not options.no_compile:
        compile_layers(model)
    settings, vocab_size = recipe.pretraining, sizes.encoder.vocab_size
    masking = TokenMasking(
        vocab_size - 1, (4, vocab_size - 1), masked=settings.masked, random=settings.random
    )
    batch = sizes.batch
    streaming = Streaming(per_batch=batch)
    corpus = ImageTextCorpus(regions, LanguageBalancedSampler(captions, streaming=streaming))
    names = LabelTokens(dict.fromkeys(LANGUAGES, [""] * NUM_LABELS), RandomTokenizer(vocab_size))
    pairs = align_half(captions, streaming)
    tasks: dict[str, Task] = {
        "itm": ITMTask(model, corpus, batch=batch),
        "mlm": MLMTask(model, corpus, masking, batch=batch),
        "mrtm": MRTMTask(model, corpus, names, batch=batch),
        "vtlm": VTLMTask(model, regions, pairs, masking, batch=batch, co_masked=settings.co_masked),
    }
    return model, tasks


def loop_settings(options: argparse.Namespace) -> LoopConfig:
    """Return the recipe's loop with the benchmark's interval of checkpoints."""
    recipe = _recipe()
    loop = stage_loop(recipe.loop, recipe.pretraining)
    loop = replace(loop, save_every=options.save_every, log_every=5 if options.tiny else 50)
    return loop if torch.cuda.is_available() else replace(loop, precision="float32")


def _recipe() -> UC2Recipe:
    settings = open_recipe(RECIPE).settings
    assert isinstance(settings, UC2Recipe)
    return settings


def mixture_of(tasks: Mapping[str, Task]) -> Mixture:
    """Draw objectives in the recipe's ratio."""
    return Mixture(tasks, asdict(_recipe().pretraining.mixture))


class TimeUpError(Exception):
    """The time of a training run is over."""


class Timed:
    """A task that ends training at a time; the clock starts with its first step."""

    started: float | None = None

    def __init__(self, task: Task, seconds: float) -> None:
        self.task, self.seconds, self.batch = task, seconds, getattr(task, "batch", 1)

    def sample(self, generator: np.random.Generator) -> Batch:
        """Sample the task's batch."""
        return self.task.sample(generator)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return the task's losses, unless the time is over."""
        if Timed.started is None:
            Timed.started = time.monotonic()
            print("training", flush=True)
        if time.monotonic() - Timed.started > self.seconds:
            raise TimeUpError
        return self.task.losses(batch)


def train_until(options: argparse.Namespace, sizes: Sizes) -> None:
    """Train for half of the minutes in this process, or until it is killed."""
    model, tasks = build(options, sizes)
    timed = {name: Timed(task, 30 * options.minutes) for name, task in tasks.items()}
    with contextlib.suppress(TimeUpError):
        train_loop(model, mixture_of(timed), loop_settings(options), options.run, quiet=True)
    figures: dict[str, Any] = {"memory": memory(os.getpid())}
    if torch.cuda.is_available():
        figures["peak_device_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    print(json.dumps(figures), flush=True)


def train_killed_and_resumed(options: argparse.Namespace) -> dict[str, Any]:
    """Train in a process that is killed at half time, and in one that resumes."""
    command = [sys.executable, "-m", "benchmarks.speed.streaming_corpus", "--worker"]
    for name in ("corpus", "minutes", "gigabytes", "run"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--save-every", str(options.save_every)]
    command += ["--tiny"] * options.tiny + ["--no-compile"] * options.no_compile
    parts = []
    for part in ("killed", "resumed"):
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert worker.stdout is not None
        begun = time.monotonic()
        try:
            for line in worker.stdout:
                if line.strip() == "training":
                    break
            seconds_to_start = time.monotonic() - begun
            figures: dict[str, Any] = {}
            if part == "killed":
                time.sleep(30 * options.minutes - 1)
                while worker.poll() is None and not any(options.run.glob("latest*/state.json")):
                    time.sleep(0.2)
                figures = {"memory": memory(worker.pid)}
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            else:
                lines = [line for line in worker.stdout if line.startswith("{")]
                figures = json.loads(lines[-1])
        finally:
            if worker.poll() is None:
                worker.wait(timeout=60)
        if worker.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"training ended with status {worker.returncode}")
        parts.append({"part": part, "seconds_to_start": round(seconds_to_start, 1), **figures})
        parts[-1] |= {"speed": read_speed(options.run), "last_logged_step": last_step(options.run)}
    return {"minutes": options.minutes, "parts": parts}


def read_speed(run: Path) -> dict[str, float]:
    """Return the median pairs a second of the logged intervals, and the last one."""
    lines = [json.loads(line) for line in (run / "speed.jsonl").read_text().splitlines()]
    rates = [line["pairs_per_second"] for line in lines]
    steady = rates[len(rates) // 4 :]
    return {
        "median_pairs_per_second": round(float(np.median(steady))),
        "last_pairs_per_second": round(rates[-1]),
        **{key: round(lines[-1][key], 3) for key in ("tflops", "peak_share") if key in lines[-1]},
    }


def last_step(run: Path) -> int:
    """Return the last logged step."""
    return int(json.loads((run / "log.jsonl").read_text().splitlines()[-1])["step"])


def memory(pid: int) -> dict[str, float]:
    """Return the resident memory of a process in GB: its peak, and its parts now."""
    fields = {}
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem"):
            fields[name] = round(int(value.split()[0]) * 1024 / 1e9, 2)
    return fields


# Beside batches that lie on the device


def compare(options: argparse.Namespace, sizes: Sizes) -> dict[str, Any]:
    """Time the same steps streamed and with their batches on the device, in turn."""
    model, tasks = build(options, sizes)
    loop, mixture = loop_settings(options), mixture_of(tasks)
    device = next(model.parameters()).device
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=1e-5, betas=loop.betas, weight_decay=loop.weight_decay,
        fused=device.type == "cuda",
    )  # fmt: skip
    model.train()

    def steps(batches: list[PreparedBatch] | Prefetcher, count: int) -> float:
        """Return the seconds of so many training steps."""
        _synchronise()
        begin = time.perf_counter()
        for number, prepared in zip(range(count), batches, strict=False):
            seed_torch(0, number, 0)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                losses = prepared.task.losses(prepared.batch)
            torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), loop.grad_clip or 1e9)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        _synchronise()
        return time.perf_counter() - begin

    times: dict[str, list[float]] = {"streamed": [], "resident": []}
    sampling: list[float] = []
    for turn in range(-1, ROUNDS):  # the first turn is the warm-up, with every objective
        first = 1000 * (turn + 1)
        numbers = range(first, first + STEPS_AHEAD + STEPS_A_ROUND)
        begin = time.perf_counter()
        with Prefetcher(mixture, numbers, seed=0, device=device, depth=0) as batches:
            resident = list(batches)[STEPS_AHEAD:]
        _synchronise()
        sampling.append((time.perf_counter() - begin) / len(numbers))
        spent = {"resident": steps(resident, STEPS_A_ROUND)}
        del resident
        evict(options.corpus)
        with Prefetcher(mixture, numbers, seed=0, device=device) as batches:
            steps(batches, STEPS_AHEAD)
            spent["streamed"] = steps(batches, STEPS_A_ROUND)
        if turn >= 0:
            for name, seconds in spent.items():
                times[name].append(seconds)
    rates = {
        name: round(STEPS_A_ROUND * sizes.batch / float(np.median(spent)))
        for name, spent in times.items()
    }
    return {
        "pairs_per_second": rates,
        "streaming_cost": round(1 - rates["streamed"] / rates["resident"], 4),
        "seconds_to_sample": round(float(np.median(sampling)), 4),
        "seconds_of_a_step": round(float(np.median(times["resident"])) / STEPS_A_ROUND, 4),
        "memory": memory(os.getpid()),
    }


def evict(corpus: Path) -> None:
    """Let the system forget what it has read of the corpus, so that it is read from the disk."""
    for path in corpus.rglob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
