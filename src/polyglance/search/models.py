"""Which model a library is of: how it is opened again, and known to be the same."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TypeAlias

from polyglance.encoders import Encoder, load
from polyglance.encoders.folder import DEFAULT, shipped
from polyglance.errors import PolyglanceError
from polyglance.search.store import Manifest

Model: TypeAlias = "str | Path | Encoder | None"
"""A model's name or folder, an encoder, or None for that which comes with Polyglance."""


def open_model(model: Model, threads: int | None = None) -> Encoder:
    """The encoder that is meant."""
    if model is None or isinstance(model, str | Path):
        return load(model, threads=threads)
    return model


def new_manifest(model: Model, encoder: Encoder) -> Manifest:
    """Of a library that does not exist yet."""
    source = ""
    if model is None:
        source = DEFAULT
    elif isinstance(model, str | Path):
        source = str(model) if model in shipped() else str(Path(model).expanduser().resolve())
    return Manifest(encoder.name, source, encoder.fingerprint, encoder.width, uuid.uuid4().hex)


def model_of(manifest: Manifest, library: str) -> Model:
    """What opens the model that a library was made with."""
    if not manifest.source:
        raise PolyglanceError(
            f"{library} was made with the encoder {manifest.model}, which was given as an object:"
            " give it again as `model`"
        )
    return manifest.source


def check_model(manifest: Manifest, encoder: Encoder, library: str) -> None:
    """Refuse a model whose vectors cannot be compared with those of the library."""
    if (encoder.width, encoder.fingerprint) != (manifest.width, manifest.fingerprint):
        another = "another " if encoder.name == manifest.model else ""
        raise PolyglanceError(
            f"{library} was made with the model {manifest.model} ({manifest.width} wide,"
            f" {manifest.fingerprint[:8]}) and cannot be used with {another}{encoder.name}"
            f" ({encoder.width} wide, {encoder.fingerprint[:8]}): give the model that it was made"
            " with, or index into a new library"
        )
