"""A model folder taken apart: its encoder of sentences and its picture network.

Both become folders as other pretrained weights have them, so that a model that reads
sentences and pictures together can begin with what one has learned that embeds them
apart: ``encoder: TOWERS/text`` in a recipe, ``--backbone TOWERS/pictures`` for features.
What made one space of both is a third, ``meeting: TOWERS/meeting``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from polyglance.encoders.folder import VOCABULARY, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.export.reading import load_torch
from polyglance.export.skeleton import published_eyes
from polyglance.models.meeting import take_out, write_meeting
from polyglance.nn.pretrained import save_encoder
from polyglance.vision.efficientnet import Network
from polyglance.weights import sha256_of
from polyglance.weights.unigram import xlmr_tokenizer

TEXT, PICTURES, MEETING = "text", "pictures", "meeting"
_WEIGHTS = "model.safetensors"
_DONE = "model.txt"
"""Written last: of which model all this is."""


class Towers(NamedTuple):
    """Folders of what a model was taken apart into."""

    text: Path
    pictures: Path
    meeting: Path | None


def unpack(folder: str | Path | None, out: Path) -> Towers:
    """Write the towers of a model that reads sub-words, and where they meet.

    ``out/text`` is an encoder with its tokenizer, ``out/pictures`` a backbone without
    a classifier: features are extracted from it with ``--labels 0``. ``out/meeting`` is
    there where sentences are the mean of their words. The shipped model is rounded, and
    so are the weights.
    """
    found = ModelFolder.open(folder)
    (out / _DONE).unlink(missing_ok=True)
    model = load_torch(found.path)
    save_encoder(model.encoder, out / TEXT)
    vocabulary = Vocabulary.from_bytes(found.read(VOCABULARY))
    pieces = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
    xlmr_tokenizer(pieces, vocabulary.charsmap).save(str(out / TEXT / "tokenizer.json"))
    eyes = model.eyes
    assert isinstance(eyes, Network)
    settings = found.description.pictures
    _save_eyes(eyes, settings.size, settings.mean, settings.std, out / PICTURES)
    meeting = take_out(
        model,
        fingerprint=found.description.fingerprint,
        eyes=sha256_of(out / PICTURES / _WEIGHTS),
    )
    shutil.rmtree(out / MEETING, ignore_errors=True)
    if meeting is not None:
        write_meeting(meeting, out / MEETING)
    (out / _DONE).write_text(found.description.fingerprint + "\n", encoding="utf-8")
    return Towers(out / TEXT, out / PICTURES, None if meeting is None else out / MEETING)


def unpack_once(folder: str | Path | None, out: Path) -> Towers:
    """The same, unless all of this very model lies there already."""
    found = unpacked(out)
    if found is None:
        return unpack(folder, out)
    was = (out / _DONE).read_text(encoding="utf-8").strip()
    is_same = was == ModelFolder.open(folder).description.fingerprint
    return found if is_same else unpack(folder, out)


def unpacked(out: Path) -> Towers | None:
    """The towers that lie in a folder, of whichever model; None where some of it is missing."""
    towers = (out / TEXT, out / PICTURES)
    if not all(file.is_file() for file in (out / _DONE, *(t / _WEIGHTS for t in towers))):
        return None
    meeting = out / MEETING
    return Towers(*towers, meeting if meeting.is_dir() else None)


def _save_eyes(
    eyes: Network, size: int, mean: tuple[float, ...], std: tuple[float, ...], folder: Path
) -> None:
    """Write a picture network as published ones are, each norm doing nothing."""
    variant, state = published_eyes(eyes)
    channels = len(eyes.head.weight)
    # Networks have a classifier: one class, which every cell is of.
    nothing: dict[str, Tensor] = {
        "_fc.weight": torch.zeros(1, channels),
        "_fc.bias": torch.zeros(1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state | nothing, folder / _WEIGHTS, {"format": "pt"})
    config = {
        "model_type": "efficientnet-lite",
        "variant": variant,
        "image_size": size,
        "mean": [value / 255 for value in mean],
        "std": [value / 255 for value in std],
        "num_features": channels,
        "num_classes": 1,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
