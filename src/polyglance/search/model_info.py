"""The model of a library: opening it again, and checking that it is the same."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from polyglance.encoders import Encoder, load
from polyglance.encoders.model_folder import DEFAULT_MODEL, ModelFolder, shipped_models
from polyglance.encoders.stored_features import with_features
from polyglance.errors import PolyglanceError
from polyglance.search.store import ModelInfo

Model: TypeAlias = "str | Path | Encoder | None"
"""A model's name or folder, an encoder, or None for the default model."""


def open_model(
    model: Model, threads: int | None = None, features: Sequence[str | Path] = ()
) -> Encoder:
    """Load a model by name or folder; return an encoder as it is.

    Args:
        model: The model.
        threads: Maximum number of cores.
        features: Feature stores, for a model of features (`with_features`).
    """
    loaded = (
        load(model, threads=threads) if model is None or isinstance(model, str | Path) else model
    )
    return with_features(loaded, features) if features else loaded


def new_model_info(model: Model, encoder: Encoder) -> ModelInfo:
    """Return the model information of a new library."""
    source = ""
    if model is None:
        source = DEFAULT_MODEL
    elif isinstance(model, str | Path):
        source = (
            str(model) if model in shipped_models() else str(Path(model).expanduser().resolve())
        )
    return ModelInfo(encoder.name, source, encoder.fingerprint, encoder.width, uuid.uuid4().hex)


def stored_model(info: ModelInfo, library: str) -> Model:
    """Return what opens the model that a library was made with."""
    if not info.source:
        raise PolyglanceError(
            f"{library} was made with the encoder {info.model}, which was given as an object: give"
            " it again as `model`"
        )
    return info.source


def have_same_pictures(one: ModelInfo, other: ModelInfo) -> bool:
    """Return whether two libraries have vectors of pictures of the same kind.

    That is so for one model, and for two where either was fine-tuned with the vectors of pictures
    kept; the model folders say so where they are still there.
    """
    both = {one.fingerprint, other.fingerprint}
    if len(both) == 1:
        return True
    for source in filter(None, (one.source, other.source)):
        try:
            description = ModelFolder.open(source).description
        except PolyglanceError:
            continue
        if both <= {description.fingerprint, *description.same_pictures_as}:
            return True
    return False


def check_model(
    info: ModelInfo,
    encoder: Encoder,
    library: str,
    folders: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Refuse an encoder whose vectors cannot be compared with those of the library.

    Args:
        info: The model that the library was made with.
        encoder: The model to use.
        library: Name of the library.
        folders: Returns what was indexed, for the way out.
    """
    same = (encoder.fingerprint, *getattr(encoder, "same_pictures_as", ()))
    if encoder.width != info.width or info.fingerprint not in same:
        if info.source == DEFAULT_MODEL == encoder.name:
            raise PolyglanceError(
                f"{library} was made with an earlier edition of {info.model}, whose vectors"
                " cannot be compared with this one's: index its folders into a new library, as in"
                f" 'polyglance index {shlex.join(folders()) or 'FOLDER'} --library NEW.polyglance'"
            )
        another = "another " if encoder.name == info.model else ""
        raise PolyglanceError(
            f"{library} was made with the model {info.model} (width {info.width},"
            f" {info.fingerprint[:8]}) and cannot be used with {another}{encoder.name} (width"
            f" {encoder.width}, {encoder.fingerprint[:8]}): give the model that it was made with,"
            " or index into a new library"
        )
