"""A trained model that looks at pictures, as a folder that needs nothing beside it.

- ``model.safetensors``: its weights, tied ones once; in half precision where size matters;
- ``config.json``: its shape and how pictures are seen, as the model's kind has it;
- the tokenizer's own files;
- ``eyes``: the network that looks at pictures, a folder as backbones have.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance import weights
from polyglance.config import as_plain, load
from polyglance.recipes.pairs.region_splits import Eyes
from polyglance.records import replacing
from polyglance.text import Tokenizer
from polyglance.training.checkpoints import model_tensors

STATE, CONFIG, EYES = "model.safetensors", "config.json", "eyes"


@dataclass(frozen=True, kw_only=True)
class SeesPictures:
    """What the configuration of every such model says."""

    kind: str
    eyes: Eyes
    longest_text: int
    """Sub-words of a text; longer ones are cut."""


Told = TypeVar("Told", bound=SeesPictures)


def write_model(
    folder: Path, model: nn.Module, tokenizer: Tokenizer, told: SeesPictures, *, half: bool = False
) -> None:
    """Write a model with all that it needs; ``half`` takes half the room."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = model_tensors(model)
    if half:
        tensors = {name: value.half() for name, value in tensors.items()}
    save_file(tensors, folder / STATE)
    tokenizer.save(folder)
    copy_weights(told.eyes.backbone, folder / EYES)
    own = replace(told, eyes=replace(told.eyes, backbone=EYES, views=1))
    with replacing(folder / CONFIG) as file:
        file.write(json.dumps(as_plain(own), ensure_ascii=False, indent=1) + "\n")


def copy_weights(name: str, folder: Path) -> None:
    """Lay weights, by name or folder, beside a model that needs them."""
    folder.mkdir(parents=True, exist_ok=True)
    found = weights.folder(name)
    for file in ("config.json", "model.safetensors"):
        shutil.copyfile(found / file, folder / file)


def kind_of(folder: Path) -> str | None:
    """The kind of model that a folder holds, if it is such a folder."""
    try:
        found = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return None
    return str(found["kind"]) if isinstance(found, dict) and "kind" in found else None


def read_model(folder: Path, told: type[Told]) -> tuple[Told, dict[str, Tensor]]:
    """What is told of a model, with its own eyes, and its weights in full precision."""
    plain: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
    found = load(told, plain)
    state = {name: value.to(torch.float32) for name, value in load_file(folder / STATE).items()}
    return replace(found, eyes=replace(found.eyes, backbone=str(folder / EYES))), state
