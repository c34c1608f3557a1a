"""A reader on disk: two files in the folder of the dual encoder whose words and cells it takes.

``reader.onnx`` is the cross-encoder and ``reader.json`` what it needs to know: its answers, the
weight of the dual encoder's cosine, and the words by which the language of a question is detected.
The reader has no table of words and no image network of its own: it takes rows of the table in
``text.onnx`` and cells of the feature map in ``picture.onnx`` of the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from polyglance.config import as_plain, load, validate_fields
from polyglance.encoders.model_folder import READER, READER_CONFIG, REINSTALL_HINT, ModelFolder
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.utils.bounded import parse_json

FORMAT = 1
"""Version of ``reader.json`` that is written."""


@dataclass(frozen=True)
class ReaderConfig:
    """The contents of ``reader.json``."""

    model: str
    """Fingerprint of the dual encoder whose words and cells it was trained on."""
    max_text_tokens: int
    """Maximum number of sub-words, special tokens included; longer texts are truncated."""
    grid: int
    """Cells of a picture per side; the whole picture's mean precedes them."""
    answers: Mapping[str, tuple[str, ...]]
    """The answers by language; their order is that of the classes."""
    text_layers: int = 0
    """Layers of the dual encoder's text encoder that read a text first; 0 for its word rows."""
    image_size: int | None = None
    """Pixels a side of the pictures that it reads; None for the dual encoder's size."""
    loss: Literal["binary", "categorical"] = "binary"
    """What answers were trained with: a probability of each, or one distribution over all."""
    dual_weight: float = 0.0
    """Weight of the dual encoder's cosine beside the reader's score in re-ranking."""
    lexicon: Mapping[str, dict[str, int]] = field(default_factory=dict)
    """Counts of the most frequent words of training questions by language."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Evaluation results."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        validate_fields(self, lambda value: value >= 1, "1 or more", "grid", "image_size")
        validate_fields(self, lambda value: value >= 0, "0 or more", "dual_weight", "text_layers")

    def to_bytes(self) -> bytes:
        """Return the content of ``reader.json``."""
        return (json.dumps(as_plain(self), indent=1, ensure_ascii=False) + "\n").encode()


def unusable(path: Path, error: Exception) -> DataError:
    """Return the error that a graph of the dual encoder lacks what a reader takes."""
    return DataError(
        f"{path} has nothing that the reader takes ({error_reason(error)}): {REINSTALL_HINT}"
    )


def damaged(path: Path, error: Exception) -> DataError:
    """Return the error that a reader's graph is none."""
    return DataError(f"{path} is no reader's graph ({error_reason(error)}): {REINSTALL_HINT}")


def has_reader(folder: ModelFolder) -> bool:
    """Return whether a model comes with a reader."""
    return {READER, READER_CONFIG} <= set(folder.description.files)


def read_reader_config(folder: ModelFolder) -> ReaderConfig:
    """Return what ``reader.json`` holds; an error says that a model has no reader."""
    name = folder.description.name
    if not has_reader(folder):
        raise PolyglanceError(
            f"{name} has no reader, so it neither re-ranks, answers nor explains: give a trained"
            " cross-encoder, or a model folder to which 'polyglance export' has added a reader"
        )
    try:
        plain = parse_json(folder.read_file(READER_CONFIG))
        if plain["format"] <= FORMAT:
            return load(ReaderConfig, plain)
    except (ValueError, KeyError, TypeError, PolyglanceError) as error:
        raise DataError(
            f"{folder.path / READER_CONFIG} does not describe a reader ({error_reason(error)}):"
            f" {REINSTALL_HINT}"
        ) from error
    raise DataError(
        f"the reader in {folder.path} was made by a newer Polyglance: pip install --upgrade"
        " polyglance"
    )
