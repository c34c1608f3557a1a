"""Copy a model to a folder with everything that other libraries read; needs no torch."""

from __future__ import annotations

from pathlib import Path

from polyglance.encoders.model_folder import (
    PICTURE,
    STANDARD_NAMES,
    TEXT,
    ModelDescription,
    ModelFolder,
)
from polyglance.encoders.model_writer import write_copy
from polyglance.errors import MissingExtraError


def copy_model(name_or_folder: str | Path | None, out: Path) -> ModelDescription:
    """Write a model as a complete folder of the newest format.

    Args:
        name_or_folder: The model by name or folder; None for the one that comes with Polyglance.
        out: Where to write; a model that is there is replaced.

    Returns:
        The description of the copy; libraries of the model stay valid with it.
    """
    source = ModelFolder.open(name_or_folder)
    is_old = source.description.format < STANDARD_NAMES
    return write_copy(source, out, _standard_graphs(source) if is_old else {})


def _standard_graphs(source: ModelFolder) -> dict[str, bytes]:
    """Return the graphs of a folder of an earlier format with the standard names."""
    try:
        from onnx import ModelProto
    except ModuleNotFoundError as error:
        raise MissingExtraError("a model of an earlier format", "train") from error
    from polyglance.export.inputs import with_standard_names

    return {
        name: with_standard_names(ModelProto.FromString(source.read_file(name))).SerializeToString()
        for name in (TEXT, PICTURE)
        if name in source.description.files
    }
