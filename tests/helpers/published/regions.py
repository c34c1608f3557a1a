"""Regions as detectors' outputs are published: bottom-up attention's TSV, UNITER's ``.npz``."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from helpers.published.sentences import rows

WIDTH = 8
REGIONS = 3


def boxes() -> np.ndarray:
    """Return boxes in a picture of 100 x 100 pixels."""
    return np.array([[10, 10, 90, 90], [0, 0, 50, 50], [20, 30, 60, 70]], np.float32)


def write_region_tsv(path: Path, keys: Iterable[str]) -> Path:
    """Write one line an image: id, width, height, number of boxes, boxes and features in base64."""

    def encoded(array: np.ndarray) -> str:
        return base64.b64encode(array.astype("<f4").tobytes()).decode()

    lines = [
        "\t".join(
            (key, "100", "100", str(REGIONS), encoded(boxes()), encoded(rows(key, REGIONS, WIDTH)))
        )
        for key in keys
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_region_npz(folder: Path, keys: Iterable[str], classes: int) -> Path:
    """Write a file an image, with soft labels over all classes, the background first."""
    folder.mkdir(parents=True)
    unit = boxes() / 100
    sides = np.stack([unit[:, 2] - unit[:, 0], unit[:, 3] - unit[:, 1]], axis=1)
    for number, key in enumerate(keys):
        logits = rows(key + "labels", REGIONS, classes + 1)
        logits[np.arange(REGIONS), 1 + (number + np.arange(REGIONS)) % classes] += 9
        soft = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        np.savez(
            folder / f"{key}.npz",
            features=rows(key, REGIONS, WIDTH).astype(np.float16),
            norm_bb=np.concatenate([unit, sides], axis=1).astype(np.float16),
            conf=np.full(REGIONS, 0.9, np.float16),
            soft_labels=soft.astype(np.float16),
        )
    return folder
