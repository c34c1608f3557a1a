"""A backbone of mean colours for tests; as a script, a slow extraction to be killed."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

from polyglance.vision import backbone as backbones
from polyglance.vision.extraction import extract
from polyglance.vision.shard_encoding import ExtractionSettings
from polyglance.vision.tokens import VisualTokens, grid_boxes, zero_spans

SETTINGS = ExtractionSettings(
    backbone="toy", size=64, grid=2, labels=2, dtype="float16", shard_size=4, batch_size=3
)


class Toy:
    """Features are the mean red, green and blue of a cell; its classes are those colours."""

    name, width, num_classes, fingerprint = "toy", 3, 3, "no weights"

    def __init__(self, size: int, pause: float = 0.0) -> None:
        self.size, self.pause, self.batches = size, pause, 0

    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        if self.pause < 0:
            os._exit(1)
        time.sleep(self.pause)
        self.batches += 1
        side = self.size // grid
        cells = pictures.astype(np.float32).reshape(-1, grid, side, grid, side, 3)
        features = cells.mean((2, 4)).reshape(-1, grid * grid, 3)
        probs = (features + 1) / (features + 1).sum(-1, keepdims=True)
        ids = np.argsort(-probs, axis=-1, kind="stable")[..., :labels]
        top = np.take_along_axis(probs, ids, -1).astype(np.float16)
        boxes, spans = grid_boxes(grid), zero_spans(grid * grid)
        return [
            VisualTokens(f, boxes, f.mean(0), i.astype(np.uint16), p, spans)
            for f, i, p in zip(features, ids, top, strict=True)
        ]


def install(pause: float = 0.0) -> None:
    backbones.LOADERS["toy"] = lambda name, size, threads, device: Toy(size, pause)


if __name__ == "__mp_main__":  # in a worker of the script
    install(pause=float(sys.argv[3]))
if __name__ == "__main__":
    install(pause=float(sys.argv[3]))
    extract(sys.argv[1], sys.argv[2], SETTINGS, workers=int(sys.argv[4]))
