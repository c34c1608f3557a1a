"""Load an exported model back into torch, to compare with or to train further."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.encoders.graph_reader import read_graph
from polyglance.encoders.model_folder import FEATURES, PICTURE, TEXT, VOCABULARY, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.meta_model import build_meta_model
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.compression import load_compact
from polyglance.nn.pretrained import distinct_tensors

Array = NDArray[Any]

OLD_PREFIX = re.compile(r"^eyes\.")
"""The name of the image network in graphs of version 0.1."""


def read_compact_state(folder: str | Path | ModelFolder) -> dict[str, Array]:
    """Return the compact state that a folder was exported from, rows in the tokenizer's order."""
    model = folder if isinstance(folder, ModelFolder) else ModelFolder.open(folder)
    if model.description.text != "sub-words":
        raise PolyglanceError(
            f"{model.path} holds a model of words, which cannot be loaded: use RUN/words of its run"
        )
    state = _read_weights(model)
    state["encoder.words.order"] = Vocabulary.from_bytes(model.read_file(VOCABULARY)).order
    return state


def _read_weights(model: ModelFolder) -> dict[str, Array]:
    """Return the weights of all graphs by name."""
    state: dict[str, Array] = {}
    for graph in (TEXT, PICTURE, FEATURES):
        if graph in model.description.files:
            # Without the package onnx, which machines that train may lack.
            for name, array in read_graph(model.read_file(graph)).weights.items():
                if not name.startswith("/"):  # the graph's own constants
                    state[OLD_PREFIX.sub("image_backbone.", name)] = np.array(array)
    return state


def _load_float(folder: ModelFolder, weights: dict[str, Array]) -> MMP:
    """Load a model whose weights were not compressed."""
    model = MMP(MMPConfig.from_json(folder.description.architecture))
    state = {
        name: torch.tensor(value).float()
        for name, value in weights.items()
        if not name.startswith("image_backbone.")
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any(name in distinct_tensors(model) for name in missing):
        raise PolyglanceError(f"{folder.path} holds the weights of another model: export it again")
    return model.eval()


def load_torch(folder: str | Path) -> MMP:
    """Return the model in float32, with its image network as ``image_backbone``.

    Token ids are those of the tokenizer that the model was trained with. The image
    network's classifier, which MMP does not use, is zero. A model that was trained on
    features comes without an image network.
    """
    model_folder = ModelFolder.open(folder)
    if model_folder.description.text != "words":
        weights = _read_weights(model_folder)
        if "encoder.words.weight" in weights:
            return _load_float(model_folder, weights)
    state = {name: torch.tensor(value) for name, value in read_compact_state(model_folder).items()}
    config = MMPConfig.from_json(model_folder.description.architecture)
    model = build_meta_model(config, {name: tuple(value.shape) for name, value in state.items()})
    model.to_empty(device="cpu")
    for name, parameter in model.named_parameters():
        if ".classifier." in name:
            parameter.detach().zero_()
    load_compact(model, state)
    return model
