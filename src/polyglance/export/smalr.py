"""Export a trained SMALR model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from polyglance.config import as_plain, load
from polyglance.encoders.model_folder import (
    CONSISTENCY,
    PICTURE,
    TEXT,
    VOCABULARY,
    ImagePreprocessing,
    ModelDescription,
    checksum,
)
from polyglance.encoders.model_writer import write_folder
from polyglance.encoders.word_vocabulary import WordVocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.graph import GraphWriter
from polyglance.export.smalr_graphs import (
    image_state,
    text_state,
    write_image_graph,
    write_sentence_graph,
)
from polyglance.models.smalr_folder import FeatureInfo, SMALRFolder
from polyglance.nn.sentence_gru import SentenceGRU
from polyglance.vision.backbone import open_backbone
from polyglance.vision.torch_backbone import TorchBackbone


@dataclass(frozen=True, eq=False)
class ImageBackbone:
    """An image network and its preprocessing."""

    network: nn.Module
    preprocessing: ImagePreprocessing


def open_image_backbone(features: FeatureInfo) -> ImageBackbone:
    """Open the network whose features a model was trained on.

    The exported model encodes a single view of a picture, resized as in training, even
    where the training features were averages over several views.
    """
    if features.backbone is None:
        raise PolyglanceError(
            "the backbone of the features that this model was trained on is not recorded:"
            " train on a store made by `polyglance features extract`"
        )
    backbone = open_backbone(features.backbone, size=features.size)
    if features.weights_sha256 not in (None, backbone.fingerprint):
        raise PolyglanceError(
            f"{features.backbone} has changed since this model was trained: extract the features"
            " again and train on them"
        )
    assert isinstance(backbone, TorchBackbone)
    settings = {
        "size": features.size,
        "mean": backbone.mean.tolist(),
        "std": backbone.std.tolist(),
        "resize": features.resize,
    }
    return ImageBackbone(backbone.network, load(ImagePreprocessing, settings))


def export_smalr(
    model: SMALRFolder,
    backbone: ImageBackbone,
    folder: Path,
    *,
    max_length: int,
    name: str,
    version: str = "1",
    figures: Mapping[str, Any] | None = None,
) -> ModelDescription:
    """Write a SMALR model's folder atomically, replacing a model that is there.

    Only what inference needs is kept: a table of precomputed word vectors, the row of each word
    of each language, and trained consistency, if there is any.

    Args:
        model: The trained model.
        backbone: The image network whose features it was trained on.
        folder: Where to write.
        max_length: Maximum number of words of a text.
        name: The model's name.
        version: The model's version.
        figures: Evaluation results to record.
    """
    branch = model.text.sentences
    if not isinstance(branch, SentenceGRU):
        raise PolyglanceError(
            "a model with a sentence branch per language cannot be exported:"
            " train with `branches: one`"
        )
    width = model.config.width
    graphs = {
        TEXT: write_sentence_graph(GraphWriter(text_state(model.text)), branch),
        PICTURE: write_image_graph(
            GraphWriter(image_state(backbone.network, model.image_branch)),
            backbone.network,
            width,
            backbone.preprocessing,
        ),
    }
    rows = model.text.slots.numpy().astype(np.int32)
    contents = {
        **{file: graph.SerializeToString() for file, graph in graphs.items()},
        VOCABULARY: WordVocabulary(model.lexicon, rows).to_bytes(),
    }
    if model.consistency is not None:
        contents[CONSISTENCY] = model.consistency.to_bytes()
    description = ModelDescription(
        name=name,
        version=version,
        width=width,
        max_length=max_length,
        pictures=backbone.preprocessing,
        architecture=as_plain(model.config),
        files={file: checksum(content) for file, content in contents.items()},
        languages=model.languages,
        figures=dict(figures or {}),
        text="words",
    )
    write_folder(folder, contents, description)
    return description
