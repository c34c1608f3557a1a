"""At how many pixels a side the default model should encode pictures: recall and time by size.

    python -m benchmarks.experiments.picture_sizes --data DATA --sizes 224 256 288

Networks that are trained on crops find objects larger than they are in whole pictures, so that
they encode pictures of a larger size better (Touvron et al. 2019). Recall is that of
DATA/flickr8k/val.jsonl, of the model as `polyglance export --image-size` writes it; pictures that
lie there with fewer pixels are enlarged. Times are those of decoded pictures, encoded in turns at
all sizes. Writes results/picture_sizes.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import RESULTS, write_results
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.export.copy_model import copy_model
from polyglance.records import read_manifest

ROUNDS, PICTURES = 5, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--manifest", default="flickr8k/val.jsonl")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        encoders = {}
        for size in options.sizes:
            copy_model(None, Path(folder) / str(size), image_size=size)
            encoders[size] = polyglance.load(Path(folder) / str(size), threads=options.threads)
        figures: dict[str, Any] = {"manifest": options.manifest, "threads": options.threads}
        milliseconds = time_encoding(encoders)
        recalls = evaluate(encoders, options.data / options.manifest)
        figures["sizes"] = {
            str(size): {"milliseconds": milliseconds[size], **recalls[size]} for size in encoders
        }
    write_results("picture_sizes", figures, options.out)


def evaluate(encoders: dict[int, Any], manifest: Path) -> dict[int, dict[str, float]]:
    """Return mR by language and on average, by size; texts have the same vectors at all."""
    records = [record for record in read_manifest(manifest) if record.image and record.captions]
    files = [manifest.parent / str(record.image) for record in records]
    pictures = {size: encoder.encode_pictures(files) for size, encoder in encoders.items()}
    first = next(iter(encoders.values()))
    found: dict[int, dict[str, float]] = {size: {} for size in encoders}
    for code in sorted({code for record in records for code in record.captions}):
        captions = [(text, n) for n, r in enumerate(records) for text in r.captions.get(code, ())]
        texts = first.encode_texts([text for text, _ in captions])
        owners = np.array([owner for _, owner in captions])
        for size, recalls in found.items():
            recalls[code] = float(evaluate_retrieval(pictures[size], texts, owners).mean_recall)
        print(code, {size: round(recalls[code], 1) for size, recalls in found.items()}, flush=True)
    return {
        size: {**recalls, "average": float(np.mean([*recalls.values()]))}
        for size, recalls in found.items()
    }


def time_encoding(encoders: dict[int, Any]) -> dict[int, float]:
    """Return the median milliseconds a picture, by size; sizes take turns."""
    noise = np.random.default_rng(0)
    times: dict[int, list[float]] = {size: [] for size in encoders}
    for round_number in range(ROUNDS + 1):
        for size, encoder in encoders.items():
            shape = (PICTURES, size, size, 3)
            pictures = list(noise.integers(0, 256, shape, np.uint8))
            start = time.perf_counter()
            encoder.encode_pictures(pictures)
            if round_number:  # the first one opens the network
                times[size].append(1000 * (time.perf_counter() - start) / PICTURES)
    return {size: statistics.median(values) for size, values in times.items()}


if __name__ == "__main__":
    main()
