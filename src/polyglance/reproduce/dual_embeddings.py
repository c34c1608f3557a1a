"""Embed a manifest's images and captions with a dual encoder, whose candidates are re-ranked.

    python -m polyglance.reproduce.dual_embeddings TEST.jsonl --out DATA/flickr8k/dual-test

writes ``pictures.npy`` and a file per language, as `polyglance evaluate` and the recipes of M3P
and UC2 read them, and the model's fingerprint in ``model.txt``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.encoders import load
from polyglance.evaluation.embeddings import read_layout
from polyglance.utils.progress import progress

BATCH = 64


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", help="name or folder of a model; by default the default model")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    embed(options.manifest, options.out, options.model, options.threads)


def embed(manifest: Path, out: Path, model: str | None = None, threads: int | None = None) -> None:
    """Write the embeddings of a manifest into a folder.

    Args:
        manifest: The images and captions.
        out: The folder to write into.
        model: Name or folder of a model; by default the default model.
        threads: Number of threads; by default the model's.
    """
    encoder = load(model, threads=threads)
    layout = read_layout(manifest)
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.txt").write_text(encoder.fingerprint + "\n", encoding="utf-8")
    paths = [manifest.parent / str(record.image) for record in layout.records]
    _save(out / "pictures.npy", encoder.encode_pictures, paths)
    for language, texts in layout.captions.items():
        _save(out / f"{language}.npy", encoder.encode_texts, texts)


def _save(path: Path, encode: Any, items: Any) -> None:
    """Write the vectors of all items as one float16 matrix."""
    vectors = []
    with progress(path.stem, len(items)) as advance:
        for start in range(0, len(items), BATCH):
            vectors.append(encode(items[start : start + BATCH]))
            advance(len(vectors[-1]))
    np.save(path, np.concatenate(vectors).astype(np.float16))


if __name__ == "__main__":
    main()
