"""Export a compressed MMP model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from polyglance.encoders.model_folder import (
    PICTURE,
    TEXT,
    VOCABULARY,
    ImagePreprocessing,
    ModelDescription,
    checksum,
)
from polyglance.encoders.model_writer import write_folder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.graph import Array, GraphWriter
from polyglance.export.meta_model import build_meta_model
from polyglance.export.mmp_graphs import write_image_graph, write_text_graph
from polyglance.export.vocabulary import read_vocabulary
from polyglance.models.mmp import MMPConfig
from polyglance.models.mmp_folder import used_layers
from polyglance.text import Tokenizer
from polyglance.weights.unigram import SPECIALS

_WORDS = "encoder.words"


def export_mmp(
    compact: Mapping[str, Tensor | Array],
    config: MMPConfig,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    pictures: ImagePreprocessing,
    max_length: int,
    name: str,
    version: str = "1",
    languages: Sequence[str] = (),
    figures: Mapping[str, Any] | None = None,
) -> ModelDescription:
    """Write an MMP model's folder atomically, replacing a model that is there.

    Args:
        compact: The state returned by `polyglance.nn.compression.compact_state`.
        config: The model's config.
        tokenizer: Its tokenizer.
        folder: Where to write.
        pictures: Preprocessing of its image network.
        max_length: Maximum number of sub-words of a text.
        name: The model's name.
        version: The model's version.
        languages: Its training languages.
        figures: Evaluation results to record.
    """
    config = trim(config, max_length)
    state = {key: np.asarray(value) for key, value in compact.items()}
    vocabulary = read_vocabulary(tokenizer, _frequent(state))
    state = _to_graph_state(state, vocabulary, config)
    model = build_meta_model(config, {key: value.shape for key, value in state.items()})
    contents = {
        TEXT: write_text_graph(GraphWriter(state), model).SerializeToString(),
        PICTURE: write_image_graph(GraphWriter(state), model, pictures).SerializeToString(),
        VOCABULARY: vocabulary.to_bytes(),
    }
    description = ModelDescription(
        name=name,
        version=version,
        width=config.width,
        max_length=max_length,
        pictures=pictures,
        architecture=config.to_json(),
        files={file: checksum(content) for file, content in contents.items()},
        languages=tuple(languages),
        figures=dict(figures or {}),
    )
    write_folder(folder, contents, description)
    return description


def trim(config: MMPConfig, max_length: int) -> MMPConfig:
    """Drop the layers and positions that no text reaches."""
    encoder = config.encoder
    if not 2 < max_length <= encoder.max_tokens:
        raise PolyglanceError(
            f"an encoder of {encoder.max_tokens} positions cannot take {max_length} sub-words:"
            f" give a maximum length of 3 to {encoder.max_tokens}"
        )
    config = used_layers(config)
    positions = encoder.first_position + max_length
    return replace(config, encoder=replace(config.encoder, max_position_embeddings=positions))


def _frequent(state: Mapping[str, Array]) -> Array:
    """Return which sub-words have finer codes."""
    frequent: Array = state[f"{_WORDS}.order"] < len(state[f"{_WORDS}.finer_codes"])
    if not frequent[: len(SPECIALS)].all():
        raise PolyglanceError(
            f"the special tokens {', '.join(SPECIALS)} must be among the frequent pieces:"
            " compress the model with them first"
        )
    return frequent


def _to_graph_state(
    state: Mapping[str, Array], vocabulary: Vocabulary, config: MMPConfig
) -> dict[str, Array]:
    """Return the state as the graphs store it.

    Rows of frequent pieces come first in the table; within the frequent and the others
    they take the order of the vocabulary, so that one bit per piece records the order.
    """
    graph_state = dict(state)
    order = graph_state.pop(f"{_WORDS}.order")
    places = np.empty_like(order)  # old row of each new row
    places[vocabulary.order] = order
    frequent = len(state[f"{_WORDS}.finer_codes"])
    graph_state[f"{_WORDS}.codes"] = state[f"{_WORDS}.codes"][places]
    graph_state[f"{_WORDS}.finer_codes"] = state[f"{_WORDS}.finer_codes"][places[:frequent]]
    positions = state["encoder.positions.weight"][: config.encoder.max_position_embeddings]
    graph_state["encoder.positions.weight"] = positions.astype(np.float16)
    graph_state["encoder.segments.weight"] = state["encoder.segments.weight"].astype(np.float16)
    return graph_state
