"""A fake of the parts of open_clip that Polyglance calls, for machines without the package.

The package depends on torchvision, for which some machines have no build that fits their
torch. The same tests run with the package itself where it can be imported. Names, arguments
and files are those of version 3; each network is a single layer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

_SCHEME = "local-dir:"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors",
            "open_clip_pytorch_model.bin", "model.safetensors")  # fmt: skip


class CLIP(nn.Module):
    """Vectors of bytes and of pixels."""

    def __init__(self, embed_dim: int, vision_cfg: dict[str, Any], text_cfg: dict[str, Any]):
        super().__init__()
        self.letters = nn.Embedding(257, embed_dim, padding_idx=0)
        self.drop = nn.Dropout(0.5)  # a model that was not told to work gives random vectors
        self.visual = nn.Linear(3 * vision_cfg["image_size"] ** 2, embed_dim)
        self.context = text_cfg["context_length"]

    def encode_text(self, text: Tensor) -> Tensor:
        """Sums over the letters, each the stronger the later it stands; not of unit length."""
        places = torch.arange(1, text.shape[1] + 1)[:, None]
        return (self.drop(self.letters(text)) * places).sum(1)

    def encode_image(self, image: Tensor) -> Tensor:
        """A layer over all pixels; not of unit length."""
        return self.visual(self.drop(image.flatten(1)))


def create_model_from_pretrained(
    model_name: str, *, device: str = "cpu"
) -> tuple[CLIP, Callable[[Image.Image], Tensor]]:
    """The model of a folder, in training as the package leaves it, and how it takes pictures."""
    folder, config = _config(model_name)
    model = CLIP(**config["model_cfg"]).to(device)
    weights = next(folder / name for name in _WEIGHTS if (folder / name).is_file())
    assert weights.suffix == ".safetensors", "a pickle is about to be opened"
    model.load_state_dict(load_file(weights))
    return model, _transform(config["model_cfg"]["vision_cfg"]["image_size"], config)


def get_tokenizer(model_name: str) -> Callable[[Sequence[str]], Tensor]:
    """From texts to ids, filled up with 0."""
    _, config = _config(model_name)
    longest = config["model_cfg"]["text_cfg"]["context_length"]

    def tokenize(texts: Sequence[str]) -> Tensor:
        ids = torch.zeros(len(texts), longest, dtype=torch.long)
        for row, text in zip(ids, texts, strict=True):
            letters = [byte + 1 for byte in text.encode()][:longest]
            row[: len(letters)] = torch.tensor(letters, dtype=torch.long)
        return ids

    return tokenize


def _config(model_name: str) -> tuple[Path, dict[str, Any]]:
    assert model_name.startswith(_SCHEME)
    folder = Path(model_name.removeprefix(_SCHEME))
    return folder, json.loads((folder / "open_clip_config.json").read_text())


def _transform(size: int, config: dict[str, Any]) -> Callable[[Image.Image], Tensor]:
    mean, std = (torch.tensor(config["preprocess_cfg"][key]) for key in ("mean", "std"))

    def transform(picture: Image.Image) -> Tensor:
        width, height = picture.size
        scaled = [size * side // min(width, height) for side in (width, height)]
        picture = picture.resize((scaled[0], scaled[1]), Image.Resampling.BICUBIC)
        left, top = ((side - size) / 2 for side in scaled)
        picture = picture.crop((round(left), round(top), round(left) + size, round(top) + size))
        pixels = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1) / 255
        return (pixels - mean[:, None, None]) / std[:, None, None]

    return transform
