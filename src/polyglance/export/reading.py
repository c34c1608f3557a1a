"""A model folder back in torch: to compare with, and to train on from."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch

from polyglance.config import load
from polyglance.encoders.folder import PICTURE, TEXT, VOCABULARY, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.graph import Array, stored_weights
from polyglance.export.skeleton import skeleton
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.compression import load_compact


def read_compact(folder: str | Path | ModelFolder) -> dict[str, Array]:
    """The compact state that a folder was written from, by the tokenizer's own ids."""
    found = folder if isinstance(folder, ModelFolder) else ModelFolder.open(folder)
    if found.description.text != "sub-words":
        raise PolyglanceError(
            f"{found.path} holds a model of words, which is not read back: use RUN/words of its run"
        )
    state: dict[str, Array] = {}
    for graph in (TEXT, PICTURE):
        state |= stored_weights(onnx.ModelProto.FromString(found.read(graph)))
    state["encoder.words.order"] = Vocabulary.from_bytes(found.read(VOCABULARY)).order
    return state


def load_torch(folder: str | Path) -> MMP:
    """The model with its picture network as ``eyes``, in float32.

    Words go by the ids of the tokenizer that the model was trained with. The
    classifier of the eyes, which MMP does not use, is none of the model.
    """
    found = ModelFolder.open(folder)
    state = {name: torch.tensor(value) for name, value in read_compact(found).items()}
    config = load(MMPConfig, found.description.architecture)
    model = skeleton(config, {name: tuple(value.shape) for name, value in state.items()})
    model.to_empty(device="cpu")
    for name, parameter in model.named_parameters():
        if ".classifier." in name:
            parameter.detach().zero_()
    load_compact(model, state)
    return model
