"""Export an MMP model that was trained on features.

Features of pictures that `polyglance features extract` computed come from an image backbone
that is known: it is exported along, and the model takes pictures as any other. Features of
clips, of a detector or of a network outside Polyglance are computed elsewhere: the exported
model takes them from feature stores (``--features``). Weights are stored in float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyglance.encoders.model_folder import (
    FEATURES,
    PICTURE,
    TEXT,
    VOCABULARY,
    FeatureInput,
    ImagePreprocessing,
    ModelDescription,
    checksum,
)
from polyglance.encoders.model_writer import write_folder
from polyglance.errors import PolyglanceError
from polyglance.export.graph import Array, GraphWriter
from polyglance.export.mmp import trim
from polyglance.export.mmp_graphs import (
    GridCells,
    write_feature_graph,
    write_grid_graph,
    write_text_graph,
)
from polyglance.export.smalr import ImageBackbone, open_image_backbone
from polyglance.export.vocabulary import pack_tokenizer
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.models.mmp_folder import MMPFolder, TrainedFeatures
from polyglance.models.smalr_folder import FeatureInfo
from polyglance.nn.meta import on_meta_device
from polyglance.nn.pretrained import model_tensors

_MAX_GRAPH = 2**31 - 1
"""Bytes that a file of protocol buffers can have."""


def export_mmp_features(
    trained: MMPFolder,
    folder: Path,
    *,
    name: str,
    version: str = "1",
    max_length: int | None = None,
    figures: Mapping[str, Any] | None = None,
) -> ModelDescription:
    """Write the folder of a model trained on features atomically, replacing one that is there.

    Args:
        trained: The model.
        folder: Where to write.
        name: The model's name.
        version: The model's version.
        max_length: Maximum number of sub-words of a text; None for that of training.
        figures: Evaluation results to record.
    """
    max_length = trained.max_text_tokens if max_length is None else max_length
    config = trim(trained.model.config, max_length)
    model, state = _on_meta(config), _float16_state(trained.model, config)
    units, vocabulary = pack_tokenizer(trained.tokenizer)
    graphs = {TEXT: write_text_graph(GraphWriter(state), model)}
    pictures: ImagePreprocessing | None = None
    taken: FeatureInput | None = None
    if (backbone := image_backbone_of(trained.features)) is not None:
        pictures = backbone.preprocessing
        graphs[PICTURE] = write_grid_graph(
            GraphWriter(state | _backbone_state(backbone)),
            model,
            pictures,
            backbone.network,
            _grid_cells(trained.features, backbone),
        )
    else:
        features = trained.features
        taken = FeatureInput(config.visual_width, features.max_tokens, features.prepend_global)
        graphs[FEATURES] = write_feature_graph(GraphWriter(state), model)
    for file, graph in graphs.items():
        if graph.ByteSize() > _MAX_GRAPH:
            raise PolyglanceError(
                f"{file} would have {graph.ByteSize() / 1e9:.1f} GB, above the 2 GB of an ONNX"
                " file: use an encoder with fewer layers"
            )
    contents = {file: graph.SerializeToString() for file, graph in graphs.items()}
    contents[VOCABULARY] = vocabulary
    description = ModelDescription(
        name=name,
        version=version,
        width=config.width,
        max_length=max_length,
        pictures=pictures,
        architecture=config.to_json(),
        files={file: checksum(content) for file, content in contents.items()},
        languages=trained.languages,
        figures=dict(figures or {}),
        text=units,
        features=taken,
    )
    write_folder(folder, contents, description)
    return description


def image_backbone_of(features: TrainedFeatures) -> ImageBackbone | None:
    """Open the image backbone of features of pictures; None if they are made elsewhere."""
    if not features.pictures or len(features.made_by) != 1:
        return None
    [made_by] = features.made_by
    if "backbone" not in made_by:
        return None
    info = FeatureInfo.from_store(made_by)
    if "labels_by" in made_by:  # the stored fingerprint is that of two networks
        info = replace(info, weights_sha256=None)
    return open_image_backbone(info)


def _on_meta(config: MMPConfig) -> MMP:
    """Return a model without weights, for writing its graphs."""
    with on_meta_device():
        return MMP(config).eval()


def _float16_state(model: MMP, config: MMPConfig) -> dict[str, Array]:
    """Return the weights as the graphs store them: matrices in float16, vectors in float32."""
    state = {name: value.numpy() for name, value in model_tensors(model).items()}
    positions = state["encoder.positions.weight"]
    state["encoder.positions.weight"] = positions[: config.encoder.max_position_embeddings]
    return {
        name: value.astype(np.float16) if value.ndim > 1 else value for name, value in state.items()
    }


def _backbone_state(backbone: ImageBackbone) -> dict[str, Array]:
    return {
        f"image_backbone.{name}": value.half().numpy()
        for name, value in backbone.network.state_dict().items()
        if not name.startswith("classifier.")
    }


@torch.inference_mode()
def _grid_cells(features: TrainedFeatures, backbone: ImageBackbone) -> GridCells:
    size = backbone.preprocessing.size
    channels_map = backbone.network(torch.zeros(1, 3, size, size))
    return GridCells(
        map_size=(channels_map.shape[2], channels_map.shape[3]),
        grid=int(features.made_by[0].get("grid", 7)),
        prepend_global=features.prepend_global,
        max_tokens=features.max_tokens,
    )
