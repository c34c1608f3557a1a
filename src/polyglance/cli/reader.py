"""Which commands use a model's reader: those that were given no trained cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyglance.encoders.reader import Reader


def open_reader(model: Path | None) -> Reader | None:
    """Return the reader of a model, or None where a trained cross-encoder is to be opened.

    Args:
        model: As a command was given it: None for the default model, whose reader is returned if
            there is one; a model folder or name; or a folder of a run, which has no reader.
    """
    from polyglance.encoders.model_folder import ModelFolder, is_model
    from polyglance.encoders.reader_files import has_reader

    if model is not None and not is_model(model):
        return None
    folder = ModelFolder.open(model if model is None or model.exists() else str(model))
    if model is None and not has_reader(folder):
        return None
    from polyglance.encoders.reader import Reader

    return Reader(folder)
