"""Start a model from another that was trained before: fine-tuning, and the image variant."""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from polyglance.errors import DataError, PolyglanceError
from polyglance.models.mmp import MMP
from polyglance.training.checkpoints import model_tensors
from polyglance.training.distribution import rank

_VISUAL = "visual_input."
"""The layer on features, the one part that depends on where features come from."""


def initialise_from(model: MMP, folder: Path) -> None:
    """Give a model the weights of another.

    ``folder`` is a run (its best checkpoint is taken, else its latest) or a
    checkpoint. Where features have another width than there, as those of pictures
    after a model of video, the layer on them starts afresh (MMP, section 5.6), which
    is said on standard error. All else must fit.
    """
    path = _weights_in(folder)
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read as weights ({error})") from error
    own = model_tensors(model)
    # A picture network that was trained along is no part of a model on features.
    tensors = {name: value for name, value in tensors.items() if not name.startswith("eyes.")}
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
            f"{path} was trained on features of another width: the layer on features starts afresh",
            file=sys.stderr,
        )


def _weights_in(folder: Path) -> Path:
    for place in (folder / "best", folder / "latest", folder):
        if (place / "model.safetensors").is_file():
            return place / "model.safetensors"
    raise PolyglanceError(
        f"{folder}: there is no trained model here; initialise_from takes a run's folder or a"
        " checkpoint in it"
    )
