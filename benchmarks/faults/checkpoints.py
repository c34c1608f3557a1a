"""Faults of training runs: kills, damaged checkpoints, a disk that fills up while one is written.

A run that goes on must end with the weights of an undisturbed one, to the bit.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.faults.trials import DEADLINE, Tally, redirect
from polyglance.batches.batch import Batch
from polyglance.errors import PolyglanceError
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

STEPS, SAVE_EVERY, KEEP = 60, 6, 2
REFUSED = 2
"""Exit status after an error in one sentence."""


@dataclass(frozen=True, eq=False)
class Points(Batch):
    """Inputs of a step."""

    x: Tensor


class Net(nn.Module):
    """Learns a fixed function from random points, with dropout so that randomness matters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))

    def sample(self, generator: np.random.Generator) -> Points:
        """Draw a batch, ``[32, 8]``."""
        return Points(torch.tensor(generator.normal(size=(32, 8)), dtype=torch.float32))

    def losses(self, batch: Points) -> dict[str, Tensor]:
        """Return the mean squared error."""
        return {"square": (self.layers(batch.x) - batch.x.sum(1, keepdim=True)).square().mean()}


def train(folder: Path, seconds_per_step: float = 0.0) -> bytes:
    """Train, or go on training, in this process; return the final weights."""
    torch.set_num_threads(1)
    model = Net()
    if seconds_per_step:
        model.layers.register_forward_hook(lambda *_: time.sleep(seconds_per_step))
    config = LoopConfig(
        steps=STEPS, learning_rate=0.05, save_every=SAVE_EVERY, keep_checkpoints=KEEP,
        ema_decay=0.9,
    )  # fmt: skip
    train_loop(model, Mixture({"net": model}), config, folder, quiet=True)
    return b"".join(value.detach().numpy().tobytes() for value in model.parameters())


class Run:
    """`train` in a process of its own."""

    def __init__(
        self, folder: Path, seconds_per_step: float = 0.0, limit: int | None = None
    ) -> None:
        """Start; ``limit`` is the maximum size of a file."""
        self.folder, self.result = folder, folder.with_name("result")
        self.log = folder.with_name("log")
        self.result.unlink(missing_ok=True)
        sys.stdout.flush()
        self.process = os.fork()
        if self.process:
            return
        redirect(self.log)
        code = 1
        try:
            if limit is not None:
                hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            weights = train(folder, seconds_per_step)
            self.result.write_bytes(weights)
            code = 0
        except PolyglanceError as error:
            print(error, file=sys.stderr)
            code = REFUSED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def finish(self) -> tuple[str, str]:
        """Return the outcome: the weights as text, or how it ended without."""
        end = time.monotonic() + DEADLINE
        while not (ended := os.waitpid(self.process, os.WNOHANG))[0]:
            if time.monotonic() > end:
                self.kill()
                return "endless", ""
            time.sleep(0.005)
        code = os.waitstatus_to_exitcode(ended[1])
        text = self.log.read_text(encoding="utf-8", errors="replace")
        if code == 0:
            return "finished", text
        sentence = code == REFUSED and len(text.strip().splitlines()) == 1
        return ("refused" if sentence else "traceback"), text

    def judge(self, expected: bytes) -> tuple[str, str]:
        """Return `finish`, with the weights compared."""
        outcome, text = self.finish()
        if outcome != "finished":
            return outcome, text
        same = self.result.read_bytes() == expected
        return ("right", "") if same else ("wrong", f"other weights; it said: {text}")


def prepare(scratch: Path) -> tuple[bytes, Path]:
    """Return an undisturbed run's weights, and a folder of one that was stopped half-way."""
    # In this process, so that those of the trials find everything imported.
    expected = train(scratch / "whole")
    half = scratch / "half" / "run"
    half.parent.mkdir(parents=True)
    run = Run(half, seconds_per_step=0.02)
    while not (half / f"latest-{2 * SAVE_EVERY:08d}").exists():
        time.sleep(0.005)
    run.kill()
    return expected, half


def kills(scratch: Path, count: int, rng: random.Random) -> Tally:
    """Kill training with SIGKILL, again and again, until it ends."""
    tally = Tally("training killed")
    expected, _ = prepare(scratch / "kills")
    while sum(tally.outcomes.values()) < count:
        folder = _new_folder(scratch)
        killed = 0
        for _ in range(5):
            run = Run(folder, seconds_per_step=0.002)
            time.sleep(rng.uniform(0.02, 0.4))
            run.kill()
            killed += 1
        outcome, note = Run(folder).judge(expected)
        for _ in range(killed):
            tally.add(outcome, note)
    return tally


def damages(scratch: Path, count: int, rng: random.Random) -> Tally:
    """Damage one file of a checkpoint, or of all that are kept, and go on training."""
    tally = Tally("checkpoint damaged")
    expected, half = prepare(scratch / "damages")
    for number in range(count):
        folder = _new_folder(scratch)
        shutil.copytree(half, folder)
        kept = sorted(path for path in folder.iterdir() if path.name.startswith("latest"))
        for checkpoint in kept if number % 4 == 0 else kept[:1]:
            if checkpoint.is_dir() and not checkpoint.name.endswith(".partial"):
                path = rng.choice(sorted(checkpoint.iterdir()))
                rng.choice(WAYS)(path, rng)
        outcome, note = Run(folder).judge(expected)
        text = folder.with_name("log").read_text(encoding="utf-8", errors="replace")
        if outcome == "right" and "is damaged" not in text:
            outcome, note = "wrong", "went on without a word"
        if outcome == "refused" and number % 4:
            outcome, note = "lost", note  # an intact one was left
        tally.add(outcome, note)
    return tally


def full_disk(scratch: Path, count: int, rng: random.Random) -> Tally:
    """Let the disk fill up while a checkpoint is written; make room and go on."""
    tally = Tally("disk full while training")
    expected, half = prepare(scratch / "full")
    largest = max(path.stat().st_size for path in half.rglob("*") if path.is_file())
    for _ in range(count):
        folder = _new_folder(scratch)
        shutil.copytree(half, folder)
        outcome, text = Run(folder, limit=rng.randrange(300, largest)).finish()
        if outcome == "finished":
            outcome, text = "wrong", "it did not notice"
        elif outcome == "refused":
            outcome, text = Run(folder).judge(expected)
        tally.add(outcome, text)
    return tally


def _new_folder(scratch: Path) -> Path:
    folder = scratch / "trial" / "run"
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    return folder


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _cut(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _zero(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    # What was zero before is no damage.
    path.write_bytes(content if bytes(content) != path.read_bytes() else bytes(content) + b"\0")


def _remove(path: Path, rng: random.Random) -> None:
    path.unlink()


WAYS: tuple[Callable[[Path, random.Random], None], ...] = (_flip, _flip, _cut, _zero, _remove)
