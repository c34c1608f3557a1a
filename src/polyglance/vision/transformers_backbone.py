"""Image towers of transformers as backbones: ViT, ConvNeXt, DINOv2, SigLIP's and CLIP's vision.

A folder of ``save_pretrained`` with a ``preprocessor_config.json`` opens wherever an image
backbone is named: in feature extraction, in recipes that train it along or leave it frozen, and
in export. The tower's last hidden state becomes the feature map: a convolutional network's as
it is, a transformer's patches in their grid, without the tokens before them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.utils.bounded import parse_json
from polyglance.utils.fingerprint import file_sha256
from polyglance.vision.torch_backbone import TorchBackbone
from polyglance.weights.custom_code import refuse_custom_code

PREPROCESSING = "preprocessor_config.json"
_UNUSED = ("pooler", "head")
"""Parts that only compute a vector of the whole picture, which the feature map does without."""


class TransformersNetwork(nn.Module):
    """A tower of transformers, from normalised pictures to a feature map."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        for name in _UNUSED:
            if isinstance(getattr(tower, name, None), nn.Module):
                setattr(tower, name, None)
        if hasattr(tower, "use_head"):  # SigLIP
            tower.use_head = False
        self.tower = tower
        config = tower.config
        self.patch = int(getattr(config, "patch_size", 1))
        sizes = getattr(config, "hidden_sizes", None)
        width = sizes[-1] if sizes else config.hidden_size
        size = getattr(config, "image_size", None)
        self.own_size = size if isinstance(size, int) else None
        takes = inspect.signature(tower.forward).parameters
        self.interpolates = "interpolate_pos_encoding" in takes
        self.classifier = nn.Linear(width, 1)  # stands in for classes, which a tower lacks
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map (n, channels, rows, columns) of pictures (n, RGB, height, width)."""
        height, width = int(x.shape[2]), int(x.shape[3])
        settings = {}
        if self.interpolates and (height, width) != (self.own_size, self.own_size):
            settings["interpolate_pos_encoding"] = True
        hidden: Tensor = self.tower(pixel_values=x, **settings).last_hidden_state
        if hidden.dim() == 4:
            return hidden
        rows, columns = height // self.patch, width // self.patch
        patches = hidden[:, -rows * columns :]  # after the class token and registers
        return patches.transpose(1, 2).reshape(-1, patches.shape[2], rows, columns)


class TransformersBackbone(TorchBackbone):
    """A `Backbone` of a folder that transformers' ``AutoModel`` opens."""

    network: TransformersNetwork

    def __init__(
        self, folder: Path, name: str, size: int, threads: int | None = None, device: str = "cpu"
    ) -> None:
        refuse_custom_code(folder)
        config = read_preprocessing(folder)
        network = TransformersNetwork(_open_tower(folder))
        self.set_up(network, config, folder, name, size, threads, device)
        self._check_size(folder)

    def build_network(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
        """Not used: transformers builds the network."""
        raise NotImplementedError

    def weights_fingerprint(self, folder: Path) -> str:
        """Return a hash of the weights, which may lie in several files."""
        files = sorted(folder.glob("*.safetensors"))
        if [file.name for file in files] == ["model.safetensors"]:
            return file_sha256(files[0])
        hashes = "".join(file_sha256(file) for file in files)
        return hashlib.sha256(hashes.encode()).hexdigest()

    @torch.inference_mode()
    def _check_size(self, folder: Path) -> None:
        if self.size % self.network.patch and self.network.patch > 1:
            raise PolyglanceError(
                f"{folder} has patches of {self.network.patch} pixels, which do not divide a size"
                f" of {self.size}: choose a multiple"
            )
        try:
            zeros = torch.zeros(1, 3, self.size, self.size, device=self.device)
            made = self.network(zeros)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise DataError(
                f"{folder} does not encode pictures of {self.size} x {self.size} pixels"
                f" ({error}): give a vision model of transformers, such as ViT, ConvNeXt or DINOv2"
            ) from error
        if made.shape[1] != self.width:
            raise DataError(f"{folder} gives {made.shape[1]} channels and not {self.width}")


def save_tower(backbone: TransformersBackbone, folder: Path) -> None:
    """Write a tower, as it was trained, to a folder that opens as a backbone."""
    folder.mkdir(parents=True, exist_ok=True)
    with _quiet():
        backbone.network.tower.save_pretrained(str(folder))
    scale = {"image_mean": backbone.mean, "image_std": backbone.std}
    settings = {name: [value / 255 for value in values.tolist()] for name, values in scale.items()}
    (folder / PREPROCESSING).write_text(json.dumps(settings) + "\n", encoding="utf-8")


def read_preprocessing(folder: Path) -> dict[str, Any]:
    """Return mean and standard deviation of the channels, in 0 to 1."""
    try:
        settings = parse_json((folder / PREPROCESSING).read_bytes())
        return {"mean": settings["image_mean"], "std": settings["image_std"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder / PREPROCESSING} does not say how pictures are normalised"
            f" ({error_reason(error)}): save the model's image processor there"
        ) from error


def _open_tower(folder: Path) -> Any:
    from transformers import AutoModel

    try:
        with _quiet():
            model, info = AutoModel.from_pretrained(
                str(folder),
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # transformers raises anything on a mangled folder
        line = " ".join(str(error).split())[:300]
        raise DataError(f"{folder} cannot be opened by transformers ({line})") from error
    needed = [name for name in info["missing_keys"] if not {*name.split(".")} & {*_UNUSED}]
    if needed:  # transformers initialises them randomly
        raise DataError(
            f"{folder} lacks {len(needed)} of its model's weights, such as {min(needed)}: save or"
            " download it again"
        )
    return getattr(model, "vision_model", model)  # of CLIP and SigLIP, without the text model


@contextmanager
def _quiet() -> Iterator[None]:
    """Let transformers show no progress bars, nor a report of weights, which we check ourselves."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
