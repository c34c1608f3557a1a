"""Tiny vision models of transformers with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    ConvNextConfig,
    Dinov2Config,
    SiglipConfig,
    SiglipTextConfig,
    SiglipVisionConfig,
    ViTConfig,
)

MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.2, 0.3]
SHAPE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
MLP = {"intermediate_size": 64}
VISION = SHAPE | MLP | {"image_size": 64, "patch_size": 16}
VISION_MODELS: dict[str, tuple[Any, int]] = {
    "vit": (ViTConfig(**VISION), 64),
    "vit-interpolated": (ViTConfig(**VISION), 96),
    "convnext": (ConvNextConfig(depths=[1] * 4, hidden_sizes=[8, 16, 24, 32]), 64),
    "dinov2": (Dinov2Config(**SHAPE, mlp_ratio=2, image_size=70, patch_size=14), 56),
    "siglip": (
        SiglipConfig(
            vision_config=SiglipVisionConfig(**VISION).to_dict(),
            text_config=SiglipTextConfig(**SHAPE, **MLP, vocab_size=50).to_dict(),
        ),
        64,
    ),
    "siglip-vision": (SiglipVisionConfig(**VISION), 64),
}
"""Kinds of towers with the size of their pictures."""


def save_tower_folder(kind: str, folder: Path) -> Path:
    """Save a tiny model with random weights as `save_pretrained` and its processor do."""
    torch.manual_seed(0)
    model: Any = AutoModel.from_config(VISION_MODELS[kind][0])
    model.save_pretrained(str(folder))
    settings = {"image_mean": MEAN, "image_std": STD}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder
