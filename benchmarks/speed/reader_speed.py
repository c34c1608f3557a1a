"""Speed of a model's reader: re-rank 20 hits, ask, explain, load.

    python -m benchmarks.speed.reader_speed [--model MODEL]

Times are medians of wall time on ``--threads`` cores; CPU time is beside them, since a busy machine
lengthens the former. Writes results/reader_speed.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.results_io import write_results
from polyglance.demo.photographs import photographs
from polyglance.encoders.model_folder import READER, READER_CONFIG, ModelFolder
from polyglance.encoders.reader import Reader

HITS = 20
QUERY = "two dogs playing with a red ball on the wet grass"
QUESTION = "What is the man in the red shirt holding?"
BOUNDS = {"rerank": 1.0, "ask": 1.0, "explain": 3.0, "load": 1.0, "megabytes": 11.0}
"""Seconds, and the size of the reader's files."""


def measure(run: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return the median wall and CPU time of calls after a first one."""
    run()
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"seconds": round(median(walls), 3), "cpu_seconds": round(median(cpus), 3)}


def load(folder: Path, threads: int) -> Reader:
    """Open all that a question needs."""
    reader = Reader.open(folder, threads)
    reader.score("a", reader.encode_images([np.zeros((8, 8, 3), np.uint8)]))
    reader.detect_language("a")
    return reader


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--model", default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    folder = ModelFolder.open(options.model).path
    files = [photograph.path for photograph in photographs()]
    pictures = [files[number % len(files)] for number in range(HITS)]
    reader = load(folder, options.threads)
    encoded = reader.encode_images(pictures)
    repeats = options.repeats
    figures: dict[str, object] = {
        "threads": options.threads,
        "megabytes": round(
            sum((folder / name).stat().st_size for name in (READER, READER_CONFIG)) / 1e6, 2
        ),
        "load": measure(lambda: load(folder, options.threads), repeats),
        "encode": measure(lambda: reader.encode_images(pictures), repeats),
        "score": measure(lambda: reader.score(QUERY, encoded), repeats),
        "rerank": measure(lambda: reader.score(QUERY, reader.encode_images(pictures)), repeats),
        "ask": measure(lambda: reader.ask(pictures[0], QUESTION), repeats),
        "explain": measure(lambda: reader.explain(pictures[0], QUERY), repeats),
        "explain_answer": measure(lambda: reader.explain(pictures[0], QUESTION), repeats),
        "bounds": BOUNDS,
    }
    print(json.dumps(figures, indent=2))
    write_results("reader_speed", figures, options.out)


if __name__ == "__main__":
    main()
