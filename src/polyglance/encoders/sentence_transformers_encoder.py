"""Models of sentence-transformers: a folder with ``modules.json``.

Some read texts and see pictures, such as clip-ViT-B-32. Others only read, in many
languages, into the space of a model that sees, such as clip-ViT-B-32-multilingual-v1.
For these the model that sees lies inside as the folder ``pictures``, be it a link; it
may be of any format that Polyglance opens.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from polyglance.encoders.torch_encoder import TorchEncoder, opening, refuse_pickles
from polyglance.errors import DataError, PolyglanceError, reason

if TYPE_CHECKING:
    from PIL.Image import Image

    from polyglance.encoders.protocol import Encoder

MODULES = "modules.json"
PICTURES = "pictures"
"""The folder of the model that sees for one that only reads."""


class SentenceTransformersEncoder(TorchEncoder):
    """A model of sentence-transformers, and ``eyes`` for one that only reads."""

    def __init__(
        self,
        folder: Path,
        threads: int | None = None,
        device: str = "cpu",
        eyes: Encoder | None = None,
    ) -> None:
        super().__init__(folder, threads, device)
        self.eyes = eyes
        self.modules = _modules(folder)
        for module in self.modules:
            refuse_pickles(module)

    def hashed(self) -> str:
        """See `TorchEncoder.hashed`; with eyes, it is of both models."""
        own = super().hashed()
        if self.eyes is None:
            return own
        return hashlib.sha256(f"{own} {self.eyes.fingerprint}".encode()).hexdigest()

    def decisive_files(self) -> list[Path]:
        """See `TorchEncoder.decisive_files`."""
        folders = dict.fromkeys((self.folder, *self.modules))
        return [path for folder in folders for path in self.decisive_in(folder)]

    def read(self, texts: list[str]) -> torch.Tensor:
        """See `TorchEncoder.read`."""
        return self._vectors(texts)

    def prepare(self, picture: Image) -> Any:
        """See `TorchEncoder.prepare`."""
        if self.eyes is None and "image" not in self._model.modalities:
            raise PolyglanceError(
                f"{self.folder} only reads texts: put the model that sees pictures for it inside"
                f" as the folder {PICTURES!r}, or a link to it"
            )
        return picture

    def see(self, prepared: list[Any]) -> torch.Tensor:
        """See `TorchEncoder.see`."""
        if self.eyes is not None:
            return torch.from_numpy(self.eyes.encode_pictures(prepared))
        return self._vectors(prepared)

    def _vectors(self, items: list[Any]) -> torch.Tensor:
        found: torch.Tensor = self._model.encode(
            items, convert_to_tensor=True, show_progress_bar=False
        )
        return found

    @cached_property
    def _model(self) -> Any:
        with opening(self.folder, "sentence-transformers"):
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
    """The folders of the model's modules; each must be of a class of the package itself."""
    source = folder / MODULES
    try:
        modules = json.loads(source.read_bytes())
        found = [(folder / module["path"], str(module["type"])) for module in modules]
    except OSError as error:
        raise DataError(f"{source} cannot be read ({reason(error)})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{source} does not say what its modules are ({reason(error)})") from error
    for path, kind in found:
        if not kind.startswith("sentence_transformers."):
            raise PolyglanceError(
                f"{source} asks for code of its own ({kind}), which Polyglance does not run"
            )
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{source} names a module outside its folder ({path})")
    return [path for path, _ in found if path.is_dir()]
