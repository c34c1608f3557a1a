"""Fine-tuning on a CPU, with and without the memory of freed tensors kept by the process.

    python -m benchmarks.speed.kept_memory

The recipe fine-tune learns from toy pictures, in a process of its own each time, both in turn.
CPU seconds are the system's and all; the ratios are of medians. Writes results/kept_memory.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.results_io import RESULTS, write_results
from polyglance import recipes

MODES = ("returned", "kept")
"""What happens to the memory of a freed tensor."""


def train_once(mode: str, data: Path, steps: int, threads: int) -> dict[str, float]:
    """Fine-tune in this process; return its seconds, CPU seconds and peak memory."""
    if mode == "returned":
        recipes.keep_freed_memory = lambda: contextlib.nullcontext(False)
    torch.set_num_threads(threads)
    changes = [f"loop.steps={steps}", "languages=[en, de]", "captions=train.jsonl"]
    with tempfile.TemporaryDirectory() as run, contextlib.redirect_stdout(io.StringIO()):
        before = perf_counter()
        recipes.open_recipe("fine-tune", changes).train(data, Path(run) / "run")
        seconds = perf_counter() - before
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "system_seconds": round(used.ru_stime, 1),
        "megabytes": used.ru_maxrss // 1024,
    }


def summary(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return the medians of both, and their ratios."""
    medians = {
        mode: {name: median(one[name] for one in runs) for name in runs[0]}
        for mode, runs in found.items()
    }
    returned, kept = (medians[mode] for mode in MODES)
    ratios = {name: round(kept[name] / value, 3) for name, value in returned.items() if value}
    return {"medians": medians, "ratios": ratios}


def main() -> None:
    """Measure both in turn, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="captioned pictures in train.jsonl, or the toy's")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", choices=MODES, help="one training in this process, no results")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.once:
        once = train_once(options.once, options.data, options.steps, options.threads)
        print(json.dumps(once))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or Path(folder)
        if options.data is None:
            toy = [folder, "--pictures", "300", "--clips", "0", "--size", "224"]
            command = [sys.executable, "-m", "polyglance", "data", "toy", *toy]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
        for _ in range(options.repeats):
            for mode in MODES:
                command = [
                    *(sys.executable, "-m", "benchmarks.speed.kept_memory", "--once", mode),
                    *("--data", str(data), "--steps", str(options.steps)),
                    *("--threads", str(options.threads)),
                ]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                found[mode].append(json.loads(done.stdout.splitlines()[-1]))
                print(mode, found[mode][-1], flush=True)
    settings = {"steps": options.steps, "threads": options.threads, "repeats": options.repeats}
    write_results("kept_memory", {**settings, **summary(found)}, options.out)


if __name__ == "__main__":
    main()
