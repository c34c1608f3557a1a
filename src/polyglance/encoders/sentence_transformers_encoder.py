"""sentence-transformers models: a folder with ``modules.json``.

Some encode texts and pictures, such as clip-ViT-B-32. Others only encode texts, in many
languages, into the vector space of an image model, such as clip-ViT-B-32-multilingual-v1.
For these put the image model, or a link to it, inside as the folder ``pictures``; it may be
of any format that Polyglance opens.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from polyglance.encoders.torch_encoder import TorchEncoder, open_offline, refuse_pickles
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.utils.bounded import parse_json
from polyglance.weights.custom_code import refuse_custom_code

if TYPE_CHECKING:
    from PIL.Image import Image

    from polyglance.encoders.protocol import Encoder

MODULES = "modules.json"
PICTURES = "pictures"
"""The folder of the image model of a model that only encodes texts."""
_CONFIGS = ("config.json", "router_config.json")
"""Files of a module that may name classes."""


class SentenceTransformersEncoder(TorchEncoder):
    """A sentence-transformers model, with an image encoder if it only encodes texts."""

    def __init__(
        self,
        folder: Path,
        threads: int | None = None,
        device: str = "cpu",
        image_encoder: Encoder | None = None,
    ) -> None:
        super().__init__(folder, threads, device)
        self.image_encoder = image_encoder
        self.modules = _modules(folder)
        for module in self.modules:
            refuse_pickles(module)

    def compute_fingerprint(self) -> str:
        """See `TorchEncoder.compute_fingerprint`; with an image encoder, it covers both models."""
        own = super().compute_fingerprint()
        if self.image_encoder is None:
            return own
        return hashlib.sha256(f"{own} {self.image_encoder.fingerprint}".encode()).hexdigest()

    def fingerprint_files(self) -> list[Path]:
        """See `TorchEncoder.fingerprint_files`."""
        folders = dict.fromkeys((self.folder, *self.modules))
        return [path for folder in folders for path in self.fingerprint_files_in(folder)]

    def embed_texts(self, texts: list[str]) -> torch.Tensor:
        """See `TorchEncoder.embed_texts`."""
        return self._vectors(texts)

    def preprocess(self, picture: Image) -> Any:
        """See `TorchEncoder.preprocess`."""
        if self.image_encoder is None and "image" not in self._model.modalities:
            raise PolyglanceError(
                f"{self.folder} only encodes texts: put its image model, or a link to it, inside as"
                f" the folder {PICTURES!r}"
            )
        return picture

    def embed_images(self, prepared: list[Any]) -> torch.Tensor:
        """See `TorchEncoder.embed_images`."""
        if self.image_encoder is not None:
            return torch.from_numpy(self.image_encoder.encode_pictures(prepared))
        return self._vectors(prepared)

    def _vectors(self, items: list[Any]) -> torch.Tensor:
        vectors: torch.Tensor = self._model.encode(
            items, convert_to_tensor=True, show_progress_bar=False
        )
        return vectors

    @cached_property
    def _model(self) -> Any:
        with open_offline(self.folder, "sentence-transformers"):
            package: Any = import_module("sentence_transformers")
            model = package.SentenceTransformer(
                str(self.folder),
                device=self.device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True, "dtype": torch.float32},
            )
        return model.eval().requires_grad_(False)


def _modules(folder: Path) -> list[Path]:
    """Return the folders of the model's modules, whose classes must be the package's own.

    Routers and their modules are included. Nothing is opened by the package before this check.
    """
    source = folder / MODULES
    listed = _read_json(source, "does not list its modules")
    try:
        waiting = [(source, folder / entry["path"], entry["type"]) for entry in listed]
    except (KeyError, TypeError) as error:
        raise DataError(f"{source} does not list its modules ({error_reason(error)})") from error
    folders = []
    while waiting:
        named_by, path, class_name = waiting.pop(0)
        _check_class(named_by, class_name, "sentence_transformers.")
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{named_by} names a module outside its folder ({path})")
        if not path.is_dir() or path in folders:
            continue
        folders.append(path)
        for name in _CONFIGS:
            config = path / name
            settings = _read_json(config, "is not a JSON object") if config.is_file() else {}
            if not isinstance(settings, dict):
                raise DataError(f"{config} is not a JSON object")
            if (activation := settings.get("activation_function")) is not None:
                _check_class(config, activation, "torch.nn.")
            inner = settings.get("types")  # of a router
            for key, value in inner.items() if isinstance(inner, dict) else ():
                waiting.append((config, path / key, value))
    refuse_custom_code(*dict.fromkeys((folder, *folders)))
    return folders


def _check_class(source: Path, class_name: object, prefix: str) -> None:
    if not isinstance(class_name, str) or not class_name.startswith(prefix):
        raise PolyglanceError(
            f"{source} asks for code of its own ({class_name}), which Polyglance does not run: get"
            " a version of the model that needs none"
        )


def _read_json(source: Path, problem: str) -> Any:
    try:
        return parse_json(source.read_bytes())
    except OSError as error:
        raise DataError(f"{source} cannot be read ({error_reason(error)})") from error
    except ValueError as error:
        raise DataError(f"{source} {problem} ({error_reason(error)})") from error
