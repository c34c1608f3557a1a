"""Load an exported model for fine-tuning, quantised as it is, and write it with new weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from polyglance.encoders.model_folder import (
    PICTURE,
    TEXT,
    VOCABULARY,
    ModelDescription,
    ModelFolder,
    checksum,
)
from polyglance.encoders.model_writer import write_folder
from polyglance.errors import PolyglanceError
from polyglance.export.meta_model import build_meta_model
from polyglance.export.to_torch import OLD_PREFIX, read_compact_state
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.compression import load_quantised_layers

GRAPHS = (TEXT, PICTURE)


def load_quantised(source: ModelFolder) -> MMP:
    """Return an exported model in torch with its quantisation, to be trained with it.

    Weights are rounded in every forward pass, with straight-through gradients; those of the word
    table are fixed. Its image network is the module ``image_backbone``.
    """
    state = {name: torch.tensor(value) for name, value in read_compact_state(source).items()}
    config = MMPConfig.from_json(source.description.architecture)
    model = build_meta_model(config, {name: tuple(value.shape) for name, value in state.items()})
    model.encoder.words = nn.Identity()  # hundreds of megabytes
    model.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".classifier." in name:  # which MMP does not use
                parameter.zero_()
    load_quantised_layers(model, state)
    return model


def write_fine_tuned(
    source: ModelFolder,
    state: Mapping[str, Tensor],
    folder: Path,
    *,
    name: str,
    languages: Sequence[str],
    figures: Mapping[str, Any],
) -> ModelDescription:
    """Write a model's folder with other weights in the same graphs.

    A calibration is left out, since it belongs to the vectors of before.

    Args:
        source: The model that was fine-tuned.
        state: Its weights now, from `polyglance.nn.compression.compact_state`.
        folder: Where to write.
        name: The model's name.
        languages: Its training languages.
        figures: Evaluation results to record.
    """
    contents = {VOCABULARY: source.read_file(VOCABULARY)}
    for graph in GRAPHS:
        contents[graph] = replace_weights(source.read_file(graph), state)
    description = replace(
        source.description,
        name=name,
        version="1",
        files={file: checksum(content) for file, content in contents.items()},
        languages=tuple(languages),
        figures=dict(figures),
        same_vectors_as=None,
    )
    write_folder(folder, contents, description)
    return description


def replace_weights(graph: bytes, state: Mapping[str, Tensor]) -> bytes:
    """Return an ONNX graph whose weights are those of a state; the word table stays."""
    model = onnx.ModelProto.FromString(graph)
    for tensor in model.graph.initializer:
        if tensor.name.startswith(("/", "encoder.words.")):
            continue
        old = numpy_helper.to_array(tensor)
        weight = state.get(OLD_PREFIX.sub("image_backbone.", tensor.name))
        new = None if weight is None else weight.numpy()
        if new is None or new.shape != old.shape:
            raise PolyglanceError(f"the weights of {tensor.name} do not fit: fine-tune again")
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(new, old.dtype), tensor.name))
    content: bytes = model.SerializeToString()
    return content
