"""Save and load an MMP model trained on features: ``RUN/model``, which `polyglance export` reads.

- ``model.safetensors``: the weights in float32, without encoder layers that are not used;
- ``config.json``: the model's shape, its languages, and the features that it was trained on;
- ``tokenizer.json``: the text encoder's tokenizer;
- ``image_backbone/``: a vision model of transformers, where one was trained along.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from polyglance.config import as_plain, load
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.meta import on_meta_device
from polyglance.records import atomic_write
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format

SYSTEM = "mmp"
_STATE, _CONFIG = "model.safetensors", "config.json"
OWN_FOLDER = "./"
"""Begins the name of an image backbone that lies in the model's own folder."""
_FORMAT = 1


@dataclass(frozen=True)
class TrainedFeatures:
    """The features that a model was trained on."""

    made_by: tuple[dict[str, Any], ...]
    """How each of the stores was made whose vectors are concatenated (`StoreInfo.made_by`)."""
    pictures: bool
    """Whether they are of pictures, not of clips."""
    max_tokens: int
    prepend_global: bool = False


@dataclass(frozen=True, eq=False)
class MMPFolder:
    """A trained model on features, for inference."""

    model: MMP
    tokenizer: Tokenizer
    features: TrainedFeatures
    max_text_tokens: int
    languages: tuple[str, ...]


def save_mmp(
    tensors: Mapping[str, Tensor],
    config: MMPConfig,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    features: TrainedFeatures,
    max_text_tokens: int,
    languages: Sequence[str],
) -> None:
    """Write a model's folder.

    Args:
        tensors: The model's weights by name, tied ones once.
        config: Its shape.
        tokenizer: Of its text encoder.
        folder: Where to write.
        features: What it was trained on.
        max_text_tokens: Maximum number of sub-words of a text.
        languages: Languages trained on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    used = used_layers(config)
    kept = {
        name: value.detach().contiguous().cpu()
        for name, value in tensors.items()
        if not _is_unused(name, used.encoder.num_layers)
    }
    save_file(kept, folder / _STATE)
    save = getattr(tokenizer, "save", None)
    if save is None:
        raise PolyglanceError(f"a {type(tokenizer).__name__} cannot be saved with a model")
    save(folder)
    settings = {
        "format": _FORMAT,
        "system": SYSTEM,
        "model": used.to_json(),
        "features": as_plain(features),
        "max_text_tokens": max_text_tokens,
        "languages": list(languages),
    }
    with atomic_write(folder / _CONFIG) as file:  # last: its presence says that all is there
        file.write(json.dumps(settings, indent=2) + "\n")


def used_layers(config: MMPConfig) -> MMPConfig:
    """Return the configuration without encoder layers above the one whose output is used."""
    layers = config.encoder.num_layers if config.text_layer is None else config.text_layer
    return replace(
        config,
        encoder=replace(config.encoder, num_layers=layers),
        text_layer=None,
        frozen_layers=min(config.frozen_layers, layers),
    )


def _is_unused(name: str, layers: int) -> bool:
    prefix = "encoder.layers."
    return name.startswith(prefix) and int(name.removeprefix(prefix).split(".")[0]) >= layers


def load_mmp(folder: Path) -> MMPFolder:
    """Load a folder that `save_mmp` wrote, in evaluation mode."""
    try:
        settings = parse_json((folder / _CONFIG).read_bytes())
        check_format(settings, _FORMAT, folder)
        config = MMPConfig.from_json(settings["model"])
        features = load(TrainedFeatures, settings["features"])
        state = load_file(folder / _STATE)
        languages = tuple(settings["languages"])
        max_text_tokens = int(settings["max_text_tokens"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{folder} holds no MMP model ({error_reason(error)}): run the recipe again"
        ) from error
    with on_meta_device():
        model = MMP(config)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    tied = [name for name in missing if config.share_pooling and name.startswith("visual_pooling.")]
    if unexpected or set(missing) - set(tied):
        name = [*unexpected, *missing][0]
        raise DataError(f"{folder} holds the weights of another model (see {name}): train it again")
    if config.share_pooling:
        model.visual_pooling = model.text_pooling
    tokenizer = open_tokenizer(str(folder))
    features = replace(
        features, made_by=tuple(_with_own_backbone(made, folder) for made in features.made_by)
    )
    return MMPFolder(model.eval(), tokenizer, features, max_text_tokens, languages)


def _with_own_backbone(made_by: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return how features were made, with the place of a backbone in the model's folder."""
    name = made_by.get("backbone")
    if not isinstance(name, str) or not name.startswith(OWN_FOLDER):
        return made_by
    return {**made_by, "backbone": str(folder / name)}
