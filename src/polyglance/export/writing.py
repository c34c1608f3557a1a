"""From a compressed MMP model to its folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from polyglance.encoders.folder import (
    DESCRIPTION,
    PICTURE,
    TEXT,
    VOCABULARY,
    Description,
    PictureSettings,
    fingerprint,
)
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError, reason
from polyglance.export.graph import Array, GraphWriter
from polyglance.export.picture import write_picture_graph
from polyglance.export.skeleton import skeleton
from polyglance.export.text import write_text_graph
from polyglance.export.vocabulary import read_vocabulary
from polyglance.models.mmp import MMPConfig
from polyglance.text import Tokenizer
from polyglance.weights.unigram import SPECIALS

_WORDS = "encoder.words"


def export_model(
    compact: Mapping[str, Tensor | Array],
    config: MMPConfig,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    pictures: PictureSettings,
    longest: int,
    name: str,
    version: str = "1",
    languages: Sequence[str] = (),
    figures: Mapping[str, Any] | None = None,
) -> Description:
    """Write the folder of a model, whole or not at all; a model that is there is replaced.

    ``compact`` is what `polyglance.nn.compression.compact_state` made.
    """
    config = _needed(config, longest)
    state = {key: np.asarray(value) for key, value in compact.items()}
    vocabulary = read_vocabulary(tokenizer, _frequent(state))
    state = _settled(state, vocabulary, config)
    model = skeleton(config, {key: value.shape for key, value in state.items()})
    contents = {
        TEXT: write_text_graph(GraphWriter(state), model).SerializeToString(),
        PICTURE: write_picture_graph(GraphWriter(state), model, pictures).SerializeToString(),
        VOCABULARY: vocabulary.to_bytes(),
    }
    description = Description(
        name=name,
        version=version,
        width=config.width,
        longest=longest,
        pictures=pictures,
        architecture=asdict(config),
        files={file: fingerprint(content) for file, content in contents.items()},
        languages=tuple(languages),
        figures=dict(figures or {}),
    )
    write_folder(folder, contents, description)
    return description


def _needed(config: MMPConfig, longest: int) -> MMPConfig:
    """The model less the layers and positions that no text reaches."""
    encoder = config.encoder
    if not 2 < longest <= encoder.longest:
        raise PolyglanceError(
            f"texts of {longest} sub-words do not fit an encoder that takes {encoder.longest}:"
            f" give a longest text of 3 to {encoder.longest}"
        )
    layers = encoder.layers if config.text_layer is None else config.text_layer
    return replace(
        config,
        encoder=replace(encoder, layers=layers, positions=encoder.first_position + longest),
        text_layer=None,
        frozen_layers=min(config.frozen_layers, layers),
    )


def _frequent(state: Mapping[str, Array]) -> Array:
    """Which sub-words have finer codes."""
    frequent: Array = state[f"{_WORDS}.order"] < len(state[f"{_WORDS}.finer_codes"])
    if not frequent[: len(SPECIALS)].all():
        raise PolyglanceError(
            f"the specials {', '.join(SPECIALS)} must be among the frequent words of the table:"
            " compress the model with them in front"
        )
    return frequent


def _settled(
    state: Mapping[str, Array], vocabulary: Vocabulary, config: MMPConfig
) -> dict[str, Array]:
    """The state as the graphs hold it.

    Among the frequent words, and among the others, the table's order is free: it
    becomes that of the vocabulary, which a file tells in one bit a word.
    """
    settled = dict(state)
    order = settled.pop(f"{_WORDS}.order")
    places = np.empty_like(order)  # where each place of the new order was in the old
    places[vocabulary.order] = order
    frequent = len(state[f"{_WORDS}.finer_codes"])
    settled[f"{_WORDS}.codes"] = state[f"{_WORDS}.codes"][places]
    settled[f"{_WORDS}.finer_codes"] = state[f"{_WORDS}.finer_codes"][places[:frequent]]
    positions = state["encoder.positions.weight"][: config.encoder.positions]
    settled["encoder.positions.weight"] = positions.astype(np.float16)
    settled["encoder.segments.weight"] = state["encoder.segments.weight"].astype(np.float16)
    return settled


def write_folder(folder: Path, contents: Mapping[str, bytes], description: Description) -> None:
    """Write a model, whole or not at all; one that is there is replaced."""
    contents = {**contents, DESCRIPTION: description.to_json().encode()}
    folder = folder.resolve()
    partial, old = (folder.with_name(folder.name + end) for end in (".partial", ".old"))
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in contents.items():
            with (partial / name).open("wb") as file:
                file.write(content)
                os.fsync(file.fileno())
        if folder.exists():
            _keep_others(folder, partial)
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
        os.replace(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise PolyglanceError(
            f"the model cannot be written to {folder} ({reason(error)}): give another folder"
        ) from error


def _keep_others(folder: Path, partial: Path) -> None:
    """Take along what somebody laid beside a model, such as its card; nothing else is replaced."""
    inside = list(folder.iterdir())
    if inside and not (folder / DESCRIPTION).is_file():
        shutil.rmtree(partial)
        raise PolyglanceError(f"{folder} holds something else than a model: give another folder")
    for path in inside:
        if path.is_dir():
            shutil.copytree(path, partial / path.name)
        elif not (partial / path.name).exists():
            shutil.copy2(path, partial / path.name)
