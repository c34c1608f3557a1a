"""Export the reader of a run into a copy of the dual encoder that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from polyglance.config import load
from polyglance.encoders.model_folder import (
    READER,
    READER_CONFIG,
    STANDARD_NAMES,
    ModelDescription,
    ModelFolder,
)
from polyglance.encoders.model_writer import write_copy
from polyglance.encoders.reader_files import ReaderConfig
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.export.graph import GraphWriter
from polyglance.export.reader_graph import graph_state, write_reader_graph
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.meta import on_meta_device
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format

COMPACT = "compact"
"""Folder of a run with a compressed reader."""
SYSTEM = "compact_reader"
FORMAT = 1
"""Version of a compressed reader's ``config.json``."""


@dataclass(frozen=True)
class CompactReader:
    """What ``RUN/compact/config.json`` holds beside its format and system."""

    dual_encoder: str
    """The model whose words and cells it takes, by name or folder."""
    model: UC2Config
    """The shape of the cross-encoder."""
    head_width: int
    """Of the answer head's inner layer."""
    reader: ReaderConfig
    """What ``reader.json`` shall hold."""
    system: str = SYSTEM
    format: int = FORMAT
    figures: dict[str, Any] = field(default_factory=dict)


def export_reader(run: Path, folder: Path, dual_encoder: str | None = None) -> ModelDescription:
    """Write a copy of a run's dual encoder with the run's reader.

    Args:
        run: The run of the recipe.
        folder: Where to write; a model that is there is replaced.
        dual_encoder: The dual encoder by name or folder, if it has moved.

    Returns:
        The description of the copy; libraries of the model stay valid with it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    compact = run / COMPACT
    try:
        plain = parse_json((compact / "config.json").read_bytes())
        check_format(plain, FORMAT, run)
        settings = load(CompactReader, plain)
        state = load_file(compact / "compact.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{run} holds no reader that can be exported ({error_reason(error)}): run the recipe"
            " again"
        ) from error
    source = ModelFolder.open(dual_encoder or settings.dual_encoder)
    description = source.description
    if description.fingerprint != settings.reader.model:
        raise PolyglanceError(
            f"{source.path} is not the model that the reader of {run} was trained on: put that one"
            f" at {settings.dual_encoder}, or train the reader again"
        )
    if description.format < STANDARD_NAMES:
        raise PolyglanceError(
            f"{source.path} is of an earlier format: copy it with 'polyglance export' first"
        )
    return write_copy(source, folder, {}, reader_contents(state, settings))


def reader_contents(
    state: Mapping[str, Tensor], settings: CompactReader, *, exact: bool = False
) -> dict[str, bytes]:
    """Return the files of a reader, by name.

    Args:
        state: Its compact state.
        settings: Its shape and answers.
        exact: Round no input of a layer to 8 bits, which takes twice the time.
    """
    answers = sum(map(len, settings.reader.answers.values()))
    with on_meta_device():
        model = VQAModel(
            UC2(settings.model), answers, head_width=settings.head_width, answer_embeddings=False
        )
    grid, text_layers = settings.reader.grid, settings.reader.text_layers
    writer = GraphWriter(graph_state(dict(state), model, grid))
    graph = write_reader_graph(writer, model, grid, text_layers, exact=exact)
    return {READER: graph.SerializeToString(), READER_CONFIG: settings.reader.to_bytes()}
