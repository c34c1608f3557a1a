"""CLIP, SigLIP, SigLIP 2 and similar models, as transformers' ``save_pretrained`` writes them.

Any transformers model with ``get_text_features`` and ``get_image_features`` works, including
the multilingual MetaCLIP 2 and AltCLIP. Texts and pictures are preprocessed by the folder's
tokenizer and image processor, the latter always with Pillow, so that vectors do not depend
on what else is installed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from polyglance.encoders.torch_encoder import TorchEncoder, open_offline, refuse_pickles
from polyglance.errors import DataError
from polyglance.weights.custom_code import refuse_custom_code

if TYPE_CHECKING:
    from PIL.Image import Image

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class TransformersEncoder(TorchEncoder):
    """A dual encoder of transformers."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "cpu") -> None:
        super().__init__(folder, threads, device)
        refuse_custom_code(folder)
        refuse_pickles(folder)

    def embed_texts(self, texts: list[str]) -> torch.Tensor:
        """See `TorchEncoder.embed_texts`."""
        max_length = self._model.config.get_text_config().max_position_embeddings
        # SigLIP was trained on texts padded to the maximum length and attends to padding.
        pad_to_max = self._model.config.model_type.startswith("siglip")
        tokens = self._tokenizer(
            texts,
            padding="max_length" if pad_to_max else "longest",
            truncation=True,
            max_length=min(max_length, self._tokenizer.model_max_length),
            return_tensors="pt",
        )
        return _vectors(self._model.get_text_features(**tokens.to(self.device)))

    def preprocess(self, picture: Image) -> Any:
        """See `TorchEncoder.preprocess`."""
        return self._processor(images=[picture], return_tensors="pt")

    def embed_images(self, prepared: list[Any]) -> torch.Tensor:
        """See `TorchEncoder.embed_images`."""
        batch = {
            key: torch.cat([image[key] for image in prepared]).to(self.device)
            for key in prepared[0]
        }
        return _vectors(self._model.get_image_features(**batch))

    @cached_property
    def _model(self) -> Any:
        with open_offline(self.folder, "transformers"):
            model, info = AutoModel.from_pretrained(
                str(self.folder),
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                **_LOCAL,
            )
        if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
            raise DataError(
                f"{self.folder} holds a {model.config.model_type}, which does not encode both texts"
                " and pictures: give a model such as CLIP or SigLIP"
            )
        if missing := sorted(info["missing_keys"]):  # transformers initialises them randomly
            raise DataError(
                f"{self.folder} lacks {len(missing)} of its model's weights, such as {missing[0]}:"
                " save or download it again"
            )
        return model.to(self.device).eval().requires_grad_(False)

    @cached_property
    def _tokenizer(self) -> Any:
        with open_offline(self.folder, "transformers"):
            return AutoTokenizer.from_pretrained(str(self.folder), **_LOCAL)

    @cached_property
    def _processor(self) -> Any:
        processors: Any = AutoImageProcessor
        with open_offline(self.folder, "transformers"):
            return processors.from_pretrained(str(self.folder), backend="pil", **_LOCAL)


def _vectors(output: Any) -> torch.Tensor:
    """Return the projected vectors; older versions of transformers return them directly."""
    vectors: torch.Tensor = getattr(output, "pooler_output", output)
    return vectors
