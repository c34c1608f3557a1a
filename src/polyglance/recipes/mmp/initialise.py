"""Initialise a model from an earlier run, or from an exported model."""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from polyglance.encoders.model_folder import ModelFolder
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.to_torch import load_torch
from polyglance.models.mmp import MMP
from polyglance.nn.pretrained import model_tensors
from polyglance.recipes.mmp.config import BACKBONE_MODULE
from polyglance.training.distributed import rank

_VISUAL = "visual_input."
"""The linear layer on features, the only part that depends on where features come from."""

_POSITIONS = "encoder.positions.weight"


def initialise_from(model: MMP, folder: Path) -> None:
    """Load the weights of a run (its best checkpoint, else its latest) or of a checkpoint.

    Where the features' width differs, as those of images after a video model, the layer on
    features keeps its new initialisation (MMP, section 5.6); standard error says so. All
    other weights must fit.
    """
    path = _weights_file(folder)
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read as weights ({error})") from error
    own = model_tensors(model)
    # An image backbone that was trained along is not part of a model on features.
    tensors = {
        name: value for name, value in tensors.items() if not name.startswith(f"{BACKBONE_MODULE}.")
    }
    weight = tensors.get(f"{_VISUAL}weight")
    same_features = weight is not None and weight.shape == own[f"{_VISUAL}weight"].shape
    if not same_features:
        tensors = {name: value for name, value in tensors.items() if not name.startswith(_VISUAL)}
        own = {name: value for name, value in own.items() if not name.startswith(_VISUAL)}
    for name in sorted(own.keys() | tensors.keys()):
        if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
            raise PolyglanceError(
                f"{path} holds a model of another shape (see {name}): give the recipe the"
                " encoder, width and pooling that it was trained with"
            )
    model.load_state_dict(tensors, strict=False)
    if not same_features and rank() == 0:
        print(
            f"{path} was trained on features of another width: the layer on features is"
            " initialised anew",
            file=sys.stderr,
        )


def continue_from(model: MMP, name_or_folder: str) -> tuple[str, ...]:
    """Load the weights of an exported photo model, with its image network, to train it further.

    The image network's classifier, which is not exported, stays as it is.

    Args:
        model: A photo model with its image network.
        name_or_folder: Of an exported model of the same architecture.

    Returns:
        The languages of the captions that it was trained on.
    """
    opened = ModelFolder.open(name_or_folder)
    folder = opened.path
    own = model.state_dict()
    tensors = {
        name: value
        for name, value in load_torch(folder).state_dict().items()
        if not name.startswith(f"{BACKBONE_MODULE}.classifier.")
    }
    # Positions beyond the longest text are not exported.
    positions, exported = own[_POSITIONS].clone(), tensors[_POSITIONS]
    if positions.shape[1] == exported.shape[1] and len(positions) >= len(exported):
        positions[: len(exported)] = exported
        tensors[_POSITIONS] = positions
    expected = {name for name in own if not name.startswith(f"{BACKBONE_MODULE}.classifier.")}
    for name in sorted(expected | tensors.keys()):
        if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
            raise PolyglanceError(
                f"{folder} holds a model of another shape (see {name}): give the recipe its"
                " encoder, image_backbone, width and pooling, or set initialise_from to null"
            )
    model.load_state_dict(tensors, strict=False)
    return opened.description.languages


def _weights_file(folder: Path) -> Path:
    for candidate in (folder / "best", folder / "latest", folder):
        if (candidate / "model.safetensors").is_file():
            return candidate / "model.safetensors"
    raise PolyglanceError(
        f"{folder}: no trained model here; initialise_from takes a run folder or a checkpoint in it"
    )
