"""Small compressed MMP models with random weights, to export and compare with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from helpers.sentences import SENTENCES
from helpers.text_encoder import unigram_tokenizer
from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.export.mmp import export_mmp
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.compression import compact_state, compress
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.text.huggingface import FastTokenizer
from polyglance.vision.efficientnet import Network

WIDTH = 64
TEXTS = [text for texts in SENTENCES.values() for text in texts]
MEAN, STD = (120.0, 110.0, 100.0), (60.0, 61.0, 62.0)

# Outputs, repeats, kernel and expansion of the stages of EfficientNet-Lite0, only narrower.
_STAGES = ((8, 1, 3, 1), (8, 2, 3, 6), (8, 2, 5, 6), (16, 3, 3, 6), (16, 3, 5, 6), (16, 4, 5, 6),
           (24, 1, 3, 6))  # fmt: skip


@cache
def tokenizer() -> FastTokenizer:
    """Return a unigram tokenizer of some hundred pieces, trained on the test sentences."""
    return unigram_tokenizer(TEXTS, pieces=900)


@dataclass(frozen=True)
class SmallModel:
    """A compressed model and its image preprocessing."""

    model: MMP
    compact: dict[str, Tensor]
    pictures: ImagePreprocessing

    def export(self, folder: Path, **changes: Any) -> Path:
        """Export the model."""
        settings = {"max_length": 40, "name": "small", "languages": ("en", "de")} | changes
        export_mmp(
            self.compact,
            self.model.config,
            tokenizer(),
            folder,
            pictures=self.pictures,
            **settings,
        )
        return folder


@cache
def small_model(
    *, seed: int = 0, size: int = 64, frequent: int = 200, activation: str = "gelu", **changes: Any
) -> SmallModel:
    """Return a model whose random weights are large enough for every part to matter; shared."""
    torch.manual_seed(seed)
    encoder = EncoderConfig(
        vocab_size=tokenizer().vocab_size,
        hidden_size=changes.pop("encoder_width", WIDTH),
        num_layers=3,
        num_heads=4,
        intermediate_size=128,
        max_position_embeddings=50,
        activation=activation,  # type: ignore[arg-type]
    )
    settings = {"text_layer": None, "frozen_layers": 0, "visual_width": WIDTH, "width": WIDTH}
    model = MMP(MMPConfig(encoder=encoder, **(settings | changes)))
    model.add_module("image_backbone", Network(image_backbone_state(), 0))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and not name.startswith("image_backbone."):
            nn.init.normal_(parameter, std=0.5 if "encoder.words" in name else 0.15)
        elif name.endswith(".bias"):
            nn.init.normal_(parameter, std=0.1)
    frequency = torch.rand(encoder.vocab_size)
    frequency[:4] = torch.inf
    compress(model, frequency, parts=8, finer_parts=4, frequent=frequent)
    return SmallModel(model.eval(), compact_state(model), ImagePreprocessing(size, MEAN, STD))


def image_backbone_state() -> dict[str, Tensor]:
    """Return random weights of a narrow EfficientNet-Lite0 under their published names."""
    state: dict[str, Tensor] = {}

    def convolution(name: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        deviation = (2 / (inputs * kernel * kernel)) ** 0.5
        state[f"{name}.weight"] = deviation * torch.randn(outputs, inputs, kernel, kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{norm}.{part}"] = 0.1 * torch.randn(outputs)
        state[f"{norm}.weight"] += 1
        state[f"{norm}.running_var"] = 1 + state[f"{norm}.running_var"].abs()

    convolution("_conv_stem", "_bn0", 8, 3, 3)
    inputs, number = 8, 0
    for outputs, repeats, kernel, expansion in _STAGES:
        for _ in range(repeats):
            name, middle = f"_blocks.{number}", inputs * expansion
            if expansion > 1:
                convolution(f"{name}._expand_conv", f"{name}._bn0", middle, inputs, 1)
            convolution(f"{name}._depthwise_conv", f"{name}._bn1", middle, 1, kernel)
            convolution(f"{name}._project_conv", f"{name}._bn2", outputs, middle, 1)
            inputs, number = outputs, number + 1
    convolution("_conv_head", "_bn1", WIDTH, inputs, 1)
    state["_fc.weight"], state["_fc.bias"] = torch.randn(7, WIDTH), torch.randn(7)
    return state


@torch.inference_mode()
def torch_texts(model: MMP, ids: list[list[int]]) -> NDArray[np.float32]:
    """Encode texts in torch, by the tokenizer's ids."""
    flat = torch.tensor([number for one in ids for number in one])
    return model.encode_text(flat, Packing.of([len(one) for one in ids])).numpy()


@torch.inference_mode()
def torch_pictures(
    model: MMP, pixels: NDArray[np.uint8], settings: ImagePreprocessing
) -> NDArray[np.float32]:
    """Encode pictures in torch, as in training: the global feature, then the cells."""
    mean, std = torch.tensor(settings.mean), torch.tensor(settings.std)
    x = ((torch.from_numpy(pixels).float() - mean) / std).permute(0, 3, 1, 2)
    cells = model.image_backbone(x).flatten(2).transpose(1, 2)  # type: ignore[operator]
    rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
    packing = Packing.of([rows.shape[1]] * len(rows))
    return model.encode_visual(rows.flatten(0, 1), packing).numpy()


def pixel_values(pixels: NDArray[np.uint8], settings: ImagePreprocessing) -> NDArray[np.float32]:
    """Normalise pictures (n, size, size, RGB) to what image graphs take."""
    mean, std = np.array(settings.mean, np.float32), np.array(settings.std, np.float32)
    return np.ascontiguousarray(((pixels - mean) / std).transpose(0, 3, 1, 2), np.float32)


def cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine of each pair of rows."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    found: NDArray[np.float32] = (first * second).sum(axis=1) / lengths
    return found
