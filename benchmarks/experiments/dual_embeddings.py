"""Embed a manifest's pictures and captions with a dual encoder, for others to read again.

    python -m benchmarks.experiments.dual_embeddings DATA/flickr8k/test.jsonl --out DATA/flickr8k/dual

writes ``pictures.npy`` and a file for each language, as `polyglance evaluate` and the
recipes of M3P and UC2 take them, and in ``model.txt`` by which model.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from polyglance.evaluation.embeddings import read_layout
from polyglance.utils.progress import progress

BLOCK = 64
"""Pictures or captions at a time."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("manifest", type=Path)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--model", help="a model by name or folder; without it the default one")
    options.add_argument("--threads", type=int)
    chosen = options.parse_args()
    encoder = polyglance.load(chosen.model, threads=chosen.threads)
    layout = read_layout(chosen.manifest)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "model.txt").write_text(encoder.fingerprint + "\n", encoding="utf-8")
    paths = [chosen.manifest.parent / str(record.image) for record in layout.pictures]
    save(chosen.out / "pictures.npy", encoder.encode_pictures, paths)
    for language, texts in layout.captions.items():
        save(chosen.out / f"{language}.npy", encoder.encode_texts, texts)


def save(path: Path, encode: Any, items: Any) -> None:
    """Write the vectors of all items as a table."""
    vectors = []
    with progress(path.stem, len(items)) as advance:
        for start in range(0, len(items), BLOCK):
            vectors.append(encode(items[start : start + BLOCK]))
            advance(len(vectors[-1]))
    np.save(path, np.concatenate(vectors).astype(np.float16))


if __name__ == "__main__":
    main()
