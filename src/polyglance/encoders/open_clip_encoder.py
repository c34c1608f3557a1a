"""open_clip models: a folder with ``open_clip_config.json`` and weights in safetensors.

This is the layout of the hub's repositories and of open_clip's own
``push_to_hf_hub.save_for_hf``. The package builds the network, tokenises texts and
preprocesses pictures.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from polyglance.encoders.torch_encoder import TorchEncoder, open_offline, refuse_pickles
from polyglance.weights.custom_code import refuse_custom_code

if TYPE_CHECKING:
    from PIL.Image import Image

WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
"""The files that the package prefers; without these it would open a pickle."""


class OpenClipEncoder(TorchEncoder):
    """An open_clip model."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "cpu") -> None:
        super().__init__(folder, threads, device)
        refuse_custom_code(folder)
        refuse_pickles(folder, WEIGHTS)

    def embed_texts(self, texts: list[str]) -> torch.Tensor:
        """See `TorchEncoder.embed_texts`."""
        vectors: torch.Tensor = self._model.encode_text(self._tokenizer(texts).to(self.device))
        return vectors

    def preprocess(self, picture: Image) -> Any:
        """See `TorchEncoder.preprocess`."""
        return self._opened[1](picture)

    def embed_images(self, prepared: list[Any]) -> torch.Tensor:
        """See `TorchEncoder.embed_images`."""
        vectors: torch.Tensor = self._model.encode_image(torch.stack(prepared).to(self.device))
        return vectors

    @property
    def _model(self) -> Any:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, Any]:
        """The network, and what prepares pictures for it."""
        with open_offline(self.folder, "open_clip"):
            package: Any = import_module("open_clip")
            model, transform = package.create_model_from_pretrained(
                f"local-dir:{self.folder}", device=self.device
            )
        return model.eval().requires_grad_(False), transform

    @cached_property
    def _tokenizer(self) -> Any:
        with open_offline(self.folder, "open_clip"):
            package: Any = import_module("open_clip")
            return package.get_tokenizer(f"local-dir:{self.folder}")
