"""From a trained word model to its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from polyglance.config import as_plain, load
from polyglance.encoders.folder import (
    PICTURE,
    TEXT,
    VOCABULARY,
    Description,
    PictureSettings,
    fingerprint,
)
from polyglance.encoders.word_vocabulary import WordVocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.graph import GraphWriter
from polyglance.export.word_graphs import (
    picture_state,
    word_state,
    write_branch_graph,
    write_sentence_graph,
)
from polyglance.export.writing import write_folder
from polyglance.models.word_folder import SeenBy, WordFolder
from polyglance.nn.sentence_gru import SentenceGRU
from polyglance.vision.backbone import open_backbone
from polyglance.vision.torch_backbone import TorchBackbone


@dataclass(frozen=True, eq=False)
class Eyes:
    """A network over pictures and what it is shown."""

    network: nn.Module
    pictures: PictureSettings


def open_eyes(seen_by: SeenBy) -> Eyes:
    """The very network whose features a model was trained on.

    A picture that is asked about is seen once, whole and squashed (or cut square, as
    in training), also where features were averages over several views of it.
    """
    if seen_by.backbone is None:
        raise PolyglanceError(
            "nobody knows which network made the features that this model was trained on:"
            " train on a store that `polyglance features extract` made"
        )
    backbone = open_backbone(seen_by.backbone, size=seen_by.size)
    if seen_by.weights_sha256 not in (None, backbone.fingerprint):
        raise PolyglanceError(
            f"{seen_by.backbone} has other weights here than those that this model was trained"
            " with: extract the features again and train on them"
        )
    assert isinstance(backbone, TorchBackbone)
    settings = {
        "size": seen_by.size,
        "mean": backbone.mean.tolist(),
        "std": backbone.std.tolist(),
        "resize": seen_by.resize,
    }
    return Eyes(backbone.network, load(PictureSettings, settings))


def export_words(
    model: WordFolder,
    eyes: Eyes,
    folder: Path,
    *,
    longest: int,
    name: str,
    version: str = "1",
    figures: Mapping[str, Any] | None = None,
) -> Description:
    """Write the folder of a word model, whole or not at all; a model that is there is replaced.

    Words are a table of rows, each vector found beforehand, and a language knows its
    words' rows; nothing of what only training needs is left.
    """
    branch = model.text.sentences
    if not isinstance(branch, SentenceGRU):
        raise PolyglanceError(
            "a model with a sentence branch for each language cannot be exported:"
            " train one with branches: one"
        )
    width = model.config.width
    graphs = {
        TEXT: write_sentence_graph(GraphWriter(word_state(model.text)), branch),
        PICTURE: write_branch_graph(
            GraphWriter(picture_state(eyes.network, model.pictures)),
            eyes.network,
            width,
            eyes.pictures,
        ),
    }
    rows = model.text.slots.numpy().astype(np.int32)
    contents = {
        **{file: graph.SerializeToString() for file, graph in graphs.items()},
        VOCABULARY: WordVocabulary(model.lexicon, rows).to_bytes(),
    }
    description = Description(
        name=name,
        version=version,
        width=width,
        longest=longest,
        pictures=eyes.pictures,
        architecture=as_plain(model.config),
        files={file: fingerprint(content) for file, content in contents.items()},
        languages=model.languages,
        figures=dict(figures or {}),
        text="words",
    )
    write_folder(folder, contents, description)
    return description
