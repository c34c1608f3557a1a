"""Recall of the default model as it is shipped: ONNX Runtime, without torch.

    python -m benchmarks.experiments.default_model --data DATA flickr8k/test.jsonl \\
      coco/held-out/nl.jsonl coco/held-out/fa.jsonl coco/held-out/vi.jsonl \\
      --word-search coco/held-out/labels.jsonl

A number after a manifest evaluates its last images only. Word search takes the names of COCO's
classes as queries over labelled images.
Writes results/default_model.json, which benchmarks.reports.default_model_page shows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import RESULTS, write_results
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.evaluation.word_search import evaluate_word_search
from polyglance.records import read_manifest
from polyglance.utils.progress import progress

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifests", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--word-search", help="manifest of images with labels")
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    encoder = polyglance.load(options.model, threads=options.threads)
    recalls = {name: evaluate(encoder, options.data, name) for name in options.manifests}
    figures = {"model": encoder.name, "recalls": recalls}
    if options.word_search is not None:
        manifest = options.data / options.word_search
        found = evaluate_word_search(encoder, manifest, split_name=options.word_search, quiet=True)
        figures["word_search"] = {
            "split": found.split,
            "pictures": found.pictures,
            "mean_average_precision": found.mean_average_precision,
        }
    write_results("default_model", figures, options.out)


def evaluate(encoder: Any, data: Path, name: str) -> dict[str, Any]:
    """Return recall by language on a manifest, or on its last images with ``MANIFEST:COUNT``."""
    path, _, last = name.partition(":")
    manifest = data / path
    records = [record for record in read_manifest(manifest) if record.image and record.captions]
    records = records[-int(last) :] if last else records
    images = _encode_all(
        encoder.encode_pictures, [manifest.parent / str(r.image) for r in records], "pictures"
    )
    figures: dict[str, Any] = {"pictures": len(records)}
    for language in sorted({language for record in records for language in record.captions}):
        captions = [
            (text, i) for i, r in enumerate(records) for text in r.captions.get(language, ())
        ]
        vectors = _encode_all(encoder.encode_texts, [text for text, _ in captions], language)
        result = evaluate_retrieval(images, vectors, np.array([image for _, image in captions]))
        figures[language] = {
            "captions": len(captions),
            "mR": result.mean_recall,
            "text_to_image": {f"R@{k}": r for k, r in result.text_to_image.recalls.items()},
            "image_to_text": {f"R@{k}": r for k, r in result.image_to_text.recalls.items()},
        }
        print(f"{name} {language} mR {result.mean_recall:.1f}", flush=True)
    recalls = [value["mR"] for value in figures.values() if isinstance(value, dict)]
    return {**figures, "average_mR": float(np.mean(recalls))}


def _encode_all(encode: Any, items: list[Any], label: str) -> Any:
    """Encode items in batches with a progress bar; return vectors (items, width)."""
    vectors = []
    with progress(label, len(items)) as advance:
        for start in range(0, len(items), BATCH):
            vectors.append(encode(items[start : start + BATCH]))
            advance(len(vectors[-1]))
    return np.concatenate(vectors)


if __name__ == "__main__":
    main()
