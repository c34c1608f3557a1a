"""Initialise a model from an earlier run, or from an exported model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

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
_CLASSIFIER = f"{BACKBONE_MODULE}.classifier."


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
    _require_same_shapes(own, tensors, path, "encoder, width and pooling")
    model.load_state_dict(tensors, strict=False)
    if not same_features and rank() == 0:
        print(
            f"{path} was trained on features of another width: the layer on features is"
            " initialised anew",
            file=sys.stderr,
        )


@dataclass(frozen=True, eq=False)
class ExportedWeights:
    """Weights of an exported photo model, for a model of the same architecture."""

    tensors: Mapping[str, Tensor]
    languages: tuple[str, ...]
    """Of the captions that it was trained on."""


def read_exported(model: MMP, name_or_folder: str) -> ExportedWeights:
    """Read an exported photo model, with its image network, to train it further.

    Without the image network's classifier, which is not exported.

    Args:
        model: A photo model with its image network, for which the weights are.
        name_or_folder: Of an exported model of the same architecture.
    """
    opened = ModelFolder.open(name_or_folder)
    own, tensors = (
        {name: value for name, value in one.state_dict().items() if _CLASSIFIER not in name}
        for one in (model, load_torch(opened.path))
    )
    # Positions beyond the longest text are not exported.
    positions, exported = own[_POSITIONS].clone(), tensors[_POSITIONS]
    if positions.shape[1] == exported.shape[1] and len(positions) >= len(exported):
        positions[: len(exported)] = exported
        tensors[_POSITIONS] = positions
    parts = "encoder, image_backbone, width and pooling"
    _require_same_shapes(own, tensors, opened.path, parts, ", or set initialise_from to null")
    return ExportedWeights(tensors, opened.description.languages)


def read_average(model: MMP, names_or_folders: Sequence[str]) -> ExportedWeights:
    """Read exported photo models and average their weights; see `read_exported`."""
    read = [read_exported(model, name) for name in names_or_folders]
    means = {
        name: torch.stack([one.tensors[name].float() for one in read]).mean(0).to(value.dtype)
        for name, value in read[0].tensors.items()
    }
    return ExportedWeights(means, tuple(sorted({code for one in read for code in one.languages})))


def _require_same_shapes(
    own: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    path: Path,
    parts: str,
    otherwise: str = "",
) -> None:
    for name in sorted(own.keys() | tensors.keys()):
        if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
            raise PolyglanceError(
                f"{path} holds a model of another shape (see {name}): give the recipe the {parts}"
                f" that it was trained with{otherwise}"
            )


def _weights_file(folder: Path) -> Path:
    for candidate in (folder / "best", folder / "latest", folder):
        if (candidate / "model.safetensors").is_file():
            return candidate / "model.safetensors"
    raise PolyglanceError(
        f"{folder}: no trained model here; initialise_from takes a run folder or a checkpoint in it"
    )
