"""CLIP, SigLIP, SigLIP 2 and their kin, as transformers' ``save_pretrained`` writes them.

Any model of transformers serves that has ``get_text_features`` and ``get_image_features``,
MetaCLIP 2 and AltCLIP in many languages among them. Texts are cut and pictures resized by
the tokenizer and the image processor of the folder, the latter always with Pillow: what
comes out does not depend on what else is installed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from polyglance.encoders.torch_encoder import TorchEncoder, opening, refuse_pickles
from polyglance.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class TransformersEncoder(TorchEncoder):
    """A two-tower model of transformers."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "cpu") -> None:
        super().__init__(folder, threads, device)
        refuse_pickles(folder)

    def read(self, texts: list[str]) -> torch.Tensor:
        """See `TorchEncoder.read`."""
        longest = self._model.config.get_text_config().max_position_embeddings
        # SigLIP learned with its texts filled up to the longest and takes padding for words.
        filled = self._model.config.model_type.startswith("siglip")
        tokens = self._tokenizer(
            texts,
            padding="max_length" if filled else "longest",
            truncation=True,
            max_length=min(longest, self._tokenizer.model_max_length),
            return_tensors="pt",
        )
        return _vectors(self._model.get_text_features(**tokens.to(self.device)))

    def prepare(self, picture: Image) -> Any:
        """See `TorchEncoder.prepare`."""
        return self._processor(images=[picture], return_tensors="pt")

    def see(self, prepared: list[Any]) -> torch.Tensor:
        """See `TorchEncoder.see`."""
        together = {
            key: torch.cat([one[key] for one in prepared]).to(self.device) for key in prepared[0]
        }
        return _vectors(self._model.get_image_features(**together))

    @cached_property
    def _model(self) -> Any:
        with opening(self.folder, "transformers"):
            model, loaded = AutoModel.from_pretrained(
                str(self.folder),
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                **_LOCAL,
            )
        if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
            raise DataError(
                f"{self.folder} holds a {model.config.model_type}, which does not make vectors of"
                " both texts and pictures: give a model such as CLIP or SigLIP"
            )
        if missing := sorted(loaded["missing_keys"]):  # transformers would fill them with noise
            raise DataError(
                f"{self.folder} lacks {len(missing)} of its model's weights, such as {missing[0]}:"
                " save or download it again"
            )
        return model.to(self.device).eval().requires_grad_(False)

    @cached_property
    def _tokenizer(self) -> Any:
        with opening(self.folder, "transformers"):
            return AutoTokenizer.from_pretrained(str(self.folder), **_LOCAL)

    @cached_property
    def _processor(self) -> Any:
        processors: Any = AutoImageProcessor
        with opening(self.folder, "transformers"):
            return processors.from_pretrained(str(self.folder), backend="pil", **_LOCAL)


def _vectors(found: Any) -> torch.Tensor:
    """Of what a model gives, the projected vectors: older ones give nothing else."""
    vectors: torch.Tensor = getattr(found, "pooler_output", found)
    return vectors
