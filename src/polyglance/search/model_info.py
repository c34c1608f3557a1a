"""The model of a library: opening it again, and checking that it is the same."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from polyglance.encoders import Encoder, load
from polyglance.encoders.model_folder import DEFAULT_MODEL, ModelFolder, shipped_models
from polyglance.encoders.protocol import picture_models_of
from polyglance.encoders.stored_features import with_features
from polyglance.errors import PolyglanceError
from polyglance.search.store import ModelInfo

_EXPORTED_EDITIONS = {
    "c6a7be277211986c91460f8dedf473db33b741f33d1e2b5b9cb8636333991443": "--image-size 224",
}
"""How `polyglance export` makes an earlier edition of the default model, by its fingerprint."""

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


def model_source(model: Model) -> str:
    """Return what a library notes to open its model again; nothing for an encoder object."""
    if model is None:
        return DEFAULT_MODEL
    if not isinstance(model, str | Path):
        return ""
    return str(model) if model in shipped_models() else str(Path(model).expanduser().resolve())


def new_model_info(model: Model, encoder: Encoder) -> ModelInfo:
    """Return the model information of a new library."""
    source = model_source(model)
    return ModelInfo(encoder.name, source, encoder.fingerprint, encoder.width, uuid.uuid4().hex)


def stored_model(info: ModelInfo, library: str) -> Model:
    """Return what opens the model that a library was made with."""
    if not info.source:
        raise PolyglanceError(
            f"{library} was made with the encoder {info.model}, which was given as an object: give"
            " it again as `model`"
        )
    if info.source not in shipped_models() and not Path(info.source).exists():
        raise PolyglanceError(
            f"{library} was made with the model {info.source}, which is no longer there: give its"
            " folder as the model (--model)"
        )
    return info.source


def picture_models(info: ModelInfo) -> frozenset[str]:
    """Return the fingerprints of the models that have a library's vectors of pictures.

    Its model's folder, where it is still there, names those that the model was fine-tuned from with
    vectors of pictures kept; without it, only the library's own model is known to have them.
    """
    if info.source:
        try:
            known = ModelFolder.open(info.source).description.picture_models
        except PolyglanceError:
            known = frozenset[str]()
        if info.fingerprint in known:
            return known
    return frozenset((info.fingerprint,))


def have_same_picture_vectors(one: ModelInfo, other: ModelInfo) -> bool:
    """Return whether vectors of pictures in two libraries can be compared."""
    if one.fingerprint == other.fingerprint:
        return True
    return not picture_models(one).isdisjoint(picture_models(other))


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
    own = picture_models_of(encoder)
    is_same = info.fingerprint in own or not own.isdisjoint(picture_models(info))
    if encoder.width != info.width or not is_same:
        if _is_earlier_edition(info):
            raise PolyglanceError(
                f"{library} was made with an earlier edition of {info.model}, whose vectors"
                f" cannot be compared with those of {encoder.name} now: index its folders into a"
                " new library, as in"
                f" 'polyglance index {shlex.join(folders()) or 'FOLDER'} --library NEW.polyglance'"
                + _way_to_export(info.fingerprint)
            )
        another = "another " if encoder.name == info.model else ""
        raise PolyglanceError(
            f"{library} was made with the model {info.model} (width {info.width},"
            f" {info.fingerprint[:8]}) and cannot be used with {another}{encoder.name} (width"
            f" {encoder.width}, {encoder.fingerprint[:8]}): {_way_to_open(info)}, or index into a"
            " new library"
        )


def _way_to_open(info: ModelInfo) -> str:
    if info.source == DEFAULT_MODEL:
        return "leave out the model, since the library's is the default"
    return f"give the model that it was made with{f', {info.source}' if info.source else ''}"


def _is_earlier_edition(info: ModelInfo) -> bool:
    """Return whether a library was made with a default model that is no longer the default."""
    if info.source != DEFAULT_MODEL:
        return False
    return info.fingerprint not in ModelFolder.open(DEFAULT_MODEL).description.picture_models


def _way_to_export(fingerprint: str) -> str:
    options = _EXPORTED_EDITIONS.get(fingerprint)
    if options is None:
        return ""
    return (
        f", or go on with its model: 'polyglance export {DEFAULT_MODEL} --out MODEL {options}', and"
        " search with --model MODEL"
    )
