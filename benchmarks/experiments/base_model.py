"""Recall of polyglance-base, the larger model, as a run of its recipe left it.

    polyglance train polyglance-base --data DATA --out RUN --device cuda
    python -m benchmarks.experiments.base_model RUN --data DATA --device cuda

Takes what the run reported of the test images, and evaluates it on the pictures held out of
training that have Dutch, Persian and Vietnamese captions: in torch, in float32. Writes
results/base_model.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.experiments.left_out_languages import evaluate_held_out
from benchmarks.results_io import RESULTS, write_results
from polyglance.recipes.mmp.train_photos import MODEL_FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    report = json.loads((options.run / "report.json").read_bytes())
    held_out = evaluate_held_out(options.run / MODEL_FOLDER, options.data, options.device)
    figures = {
        "steps": report["best_step"],
        "seconds": report["seconds"],
        "validation": report["validation"],
        "test": report["test"],
        "held_out": {code: float(result.mean_recall) for code, result in held_out.items()},
    }
    write_results("base_model", figures, options.out)


if __name__ == "__main__":
    main()
