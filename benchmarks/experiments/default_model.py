"""Recall of the model that comes with Polyglance, as it runs: ONNX, without torch.

    python -m benchmarks.experiments.default_model --data DATA flickr8k/test.jsonl coco/train.jsonl:1000

A number after a manifest takes so many of its last pictures (those that the recipe
keeps from training).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import RESULTS, write_results
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import read_manifest
from polyglance.utils.progress import progress

BLOCK = 64


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("manifests", nargs="+")
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--model")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--out", type=Path, default=RESULTS)
    chosen = options.parse_args()
    encoder = polyglance.load(chosen.model, threads=chosen.threads)
    figures = {name: measure(encoder, chosen.data, name) for name in chosen.manifests}
    write_results("default_model", {"model": encoder.name, "recalls": figures}, chosen.out)


def measure(encoder: Any, data: Path, name: str) -> dict[str, Any]:
    path, _, last = name.partition(":")
    manifest = data / path
    records = [record for record in read_manifest(manifest) if record.image and record.captions]
    records = records[-int(last) :] if last else records
    pictures = _encoded(
        encoder.encode_pictures, [manifest.parent / str(r.image) for r in records], "pictures"
    )
    found: dict[str, Any] = {"pictures": len(records)}
    for language in sorted({language for record in records for language in record.captions}):
        texts = [(text, i) for i, r in enumerate(records) for text in r.captions.get(language, ())]
        vectors = _encoded(encoder.encode_texts, [text for text, _ in texts], language)
        result = evaluate_retrieval(pictures, vectors, np.array([owner for _, owner in texts]))
        found[language] = {
            "captions": len(texts),
            "mR": result.mean_recall,
            "text_to_image": {f"R@{k}": r for k, r in result.text_to_image.recalls.items()},
            "image_to_text": {f"R@{k}": r for k, r in result.image_to_text.recalls.items()},
        }
        print(f"{name} {language} mR {result.mean_recall:.1f}", flush=True)
    measured = [value["mR"] for value in found.values() if isinstance(value, dict)]
    return {**found, "average_mR": float(np.mean(measured))}


def _encoded(encode: Any, items: list[Any], what: str) -> Any:
    vectors = []
    with progress(what, len(items)) as advance:
        for start in range(0, len(items), BLOCK):
            vectors.append(encode(items[start : start + BLOCK]))
            advance(len(vectors[-1]))
    return np.concatenate(vectors)


if __name__ == "__main__":
    main()
