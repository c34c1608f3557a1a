"""Open the model that an integration is given."""

from __future__ import annotations

from pathlib import Path

from polyglance.encoders import Encoder, load
from polyglance.encoders.model_folder import find_model, shipped_models
from polyglance.errors import PolyglanceError

Model = str | Path | None
"""A model's name or folder, as `polyglance.load` takes it; None for the default model."""


def open_model(model: Model | Encoder, *, device: str = "cpu") -> Encoder:
    """Return an encoder as it is, or load the one of a name or folder."""
    if model is None or isinstance(model, str | Path):
        return load(model, device=device)
    return model


def stored_name(model: Model) -> str | None:
    """Return a model as another program's files may name it: a folder by its whole path."""
    if model is None or model in shipped_models():
        return None if model is None else str(model)
    return str(find_model(model).resolve())


def check_fingerprint(encoder: Encoder, expected: str | None, what: str) -> None:
    """Raise an error if stored vectors are of another model.

    Args:
        encoder: The model as it is now.
        expected: Fingerprint of the model that made the vectors; None if unknown.
        what: Where the vectors are stored.
    """
    if expected is not None and expected != encoder.fingerprint:
        raise PolyglanceError(
            f"{what} was embedded by another version of {encoder.name}: open it with the model"
            " that made it, or embed it again"
        )
