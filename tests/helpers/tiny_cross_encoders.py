"""Small cross-encoders with random weights, as exported model folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from helpers.colour_encoder import write_image
from helpers.small_mmp import WIDTH
from helpers.text_encoder import save_text_encoder
from helpers.toy_questions import save_image_backbone
from polyglance.cross_encoders.model_folder import CrossEncoderFolderConfig, write_model
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.cross_encoders.vqa import VQAConfig
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.pretrained import load_encoder
from polyglance.text import open_tokenizer

SIZE = 64
ANSWERS = {"en": ("red", "blue", "two"), "de": ("rot", "blau", "zwei")}

COLOURS = {
    "red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "grey": (120, 120, 120),
    "yellow": (230, 220, 30), "white": (250, 250, 250),
}  # fmt: skip

Model = TypeVar("Model", bound=nn.Module)


def write_colour_parts(folder: Path) -> Path:
    """Write parts whose tokenizer knows sentences such as "a red picture of blue"."""
    texts = [f"a {name} picture of {other}" for name in COLOURS for other in COLOURS]
    return write_parts(folder, texts)


def write_colour_images(folder: Path) -> list[Path]:
    """Write an image of each colour."""
    return [write_image(folder / f"{name}.png", rgb, (64, 48)) for name, rgb in COLOURS.items()]


def write_parts(folder: Path, texts: Sequence[str]) -> Path:
    """Write an ``encoder`` whose tokenizer knows these texts, and an ``image_backbone``."""
    torch.manual_seed(0)
    save_text_encoder(folder / "encoder", list(texts), layers=2)
    save_image_backbone(folder / "image_backbone", SIZE)
    return folder


def tiny_uc2(parts: Path) -> UC2:
    """Build an untrained UC2 whose every layer affects the output."""
    torch.manual_seed(0)
    encoder = load_encoder(parts / "encoder", dropout=0.0)
    return _with_large_weights(UC2(UC2Config(encoder.config, WIDTH), encoder))


def tiny_m3p(parts: Path, languages: tuple[str, ...] = ("en", "de")) -> M3P:
    """Build an untrained M3P whose every layer affects the output."""
    torch.manual_seed(0)
    encoder = load_encoder(parts / "encoder", dropout=0.0)
    config = M3PConfig(encoder.config, languages, visual_width=WIDTH, num_labels=7)
    return _with_large_weights(M3P(config, encoder))


def save_cross_encoder(
    folder: Path,
    parts: Path,
    model: CrossEncoderModel,
    *,
    dual_weight: float = 0.0,
    half: bool = False,
) -> Path:
    """Save a model as ``polyglance export`` writes it."""
    config = CrossEncoderFolderConfig(
        system=type(model).__module__.rpartition(".")[2],
        model=model.config,
        image_backbone=ImageBackboneConfig(str(parts / "image_backbone"), size=SIZE),
        max_text_tokens=30,
        dual_weight=dual_weight,
    )
    write_model(folder, model, open_tokenizer(parts / "encoder"), config, half=half)
    return folder


def save_vqa_model(folder: Path, parts: Path) -> Path:
    """Save a model that answers questions in English and German."""
    model = VQAModel(tiny_uc2(parts), sum(map(len, ANSWERS.values())))
    config = VQAConfig(
        model=model.cross_encoder.config,
        answers=ANSWERS,
        loss="binary",
        image_backbone=ImageBackboneConfig(str(parts / "image_backbone"), size=SIZE),
        max_text_tokens=30,
    )
    write_model(folder, _with_large_weights(model), open_tokenizer(parts / "encoder"), config)
    return folder


def _with_large_weights(model: Model) -> Model:
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.2)
    return model.eval()
