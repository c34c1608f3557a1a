"""Split a dual encoder into its text encoder, image backbone and projection heads.

Each becomes a folder of pretrained weights, so that a cross-encoder can start from what a
dual encoder has learned: ``encoder: SPLIT/text`` in a recipe, ``--backbone
SPLIT/image_backbone`` for features and ``projection_heads: SPLIT/projection_heads``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from polyglance.encoders.model_folder import VOCABULARY, ImagePreprocessing, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.meta_model import published_state
from polyglance.export.to_torch import load_torch
from polyglance.models.projection_heads import extract_projection_heads, save_projection_heads
from polyglance.nn.pretrained import save_encoder
from polyglance.utils.fingerprint import file_sha256
from polyglance.vision.efficientnet import Network
from polyglance.weights.unigram import xlmr_tokenizer

TEXT, IMAGE_BACKBONE, PROJECTION_HEADS = "text", "image_backbone", "projection_heads"
_WEIGHTS = "model.safetensors"
_MARKER = "model.txt"
"""Written last: the fingerprint of the model that was split."""


class SplitModel(NamedTuple):
    """The folders of a split model."""

    text: Path
    image_backbone: Path
    projection_heads: Path | None


def split_model(folder: str | Path | None, out: Path) -> SplitModel:
    """Split a model of sub-words into folders of pretrained weights.

    ``out/text`` is an encoder with its tokenizer, ``out/image_backbone`` a backbone without
    a classifier, from which features are extracted with ``--labels 0``, and
    ``out/projection_heads`` is written for a model that averages a sentence's sub-words.
    The shipped model is quantised, and so are these weights.

    Args:
        folder: The model by name or folder; None for the one that comes with Polyglance.
        out: Where to write.
    """
    source = ModelFolder.open(folder)
    preprocessing = source.description.pictures
    if preprocessing is None or source.description.text != "sub-words":
        raise PolyglanceError(f"{source.path} holds no compressed model of pictures: give another")
    (out / _MARKER).unlink(missing_ok=True)
    model = load_torch(source.path)
    save_encoder(model.encoder, out / TEXT)
    vocabulary = Vocabulary.from_bytes(source.read_file(VOCABULARY))
    pieces = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
    xlmr_tokenizer(pieces, vocabulary.charsmap).save(str(out / TEXT / "tokenizer.json"))
    backbone = model.image_backbone
    assert isinstance(backbone, Network)
    _save_backbone(backbone, preprocessing, out / IMAGE_BACKBONE)
    heads = extract_projection_heads(
        model,
        fingerprint=source.description.fingerprint,
        image_backbone=file_sha256(out / IMAGE_BACKBONE / _WEIGHTS),
    )
    shutil.rmtree(out / PROJECTION_HEADS, ignore_errors=True)
    if heads is not None:
        save_projection_heads(heads, out / PROJECTION_HEADS)
    (out / _MARKER).write_text(source.description.fingerprint + "\n", encoding="utf-8")
    heads_folder = None if heads is None else out / PROJECTION_HEADS
    return SplitModel(out / TEXT, out / IMAGE_BACKBONE, heads_folder)


def split_model_once(folder: str | Path | None, out: Path) -> SplitModel:
    """Split a model into ``out``, unless that already holds all of it."""
    existing = find_split(out)
    if existing is None:
        return split_model(folder, out)
    fingerprint = (out / _MARKER).read_text(encoding="utf-8").strip()
    is_same = fingerprint == ModelFolder.open(folder).description.fingerprint
    return existing if is_same else split_model(folder, out)


def find_split(out: Path) -> SplitModel | None:
    """Return the split model in a folder, or None if there is none or it is incomplete."""
    text, backbone, heads = out / TEXT, out / IMAGE_BACKBONE, out / PROJECTION_HEADS
    files = (out / _MARKER, text / _WEIGHTS, backbone / _WEIGHTS)
    if not all(file.is_file() for file in files):
        return None
    return SplitModel(text, backbone, heads if heads.is_dir() else None)


def _save_backbone(network: Network, preprocessing: ImagePreprocessing, folder: Path) -> None:
    """Write an image network under the published names, with norms that do nothing."""
    variant, state = published_state(network)
    channels = len(network.head.weight)
    # The published network has a classifier: a single class that every cell belongs to.
    classifier: dict[str, Tensor] = {
        "_fc.weight": torch.zeros(1, channels),
        "_fc.bias": torch.zeros(1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state | classifier, folder / _WEIGHTS, {"format": "pt"})
    config = {
        "model_type": "efficientnet-lite",
        "variant": variant,
        "image_size": preprocessing.size,
        "mean": [value / 255 for value in preprocessing.mean],
        "std": [value / 255 for value in preprocessing.std],
        "num_features": channels,
        "num_classes": 1,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
