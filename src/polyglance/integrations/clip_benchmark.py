"""CLIP_benchmark: a model, its transform and its tokenizer, as its evaluations take them.

    from clip_benchmark.metrics import zeroshot_retrieval
    from polyglance.integrations.clip_benchmark import load_polyglance

    model, transform, tokenizer = load_polyglance()
    zeroshot_retrieval.evaluate(model, loader, tokenizer, "cpu", amp=False, recall_k_list=[1, 5])

Any model that `polyglance.load` opens can be measured. The vectors are those of `Encoder`: the
transform encodes a picture, because pictures are prepared differently for each model; the tokenizer
only packs texts into a tensor, which the model encodes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from polyglance.encoders import Encoder
from polyglance.errors import MissingExtraError
from polyglance.integrations.models import Model, open_model

if find_spec("clip_benchmark") is None:
    raise MissingExtraError("CLIP_benchmark", "clip-benchmark")

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingExtraError("CLIP_benchmark", "clip-benchmark") from error

if TYPE_CHECKING:
    from PIL.Image import Image

MODEL_TYPE = "polyglance"
"""CLIP_benchmark's name of our models, after `register`."""


class BenchmarkModel(torch.nn.Module):
    """A dual encoder with CLIP's two methods."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def encode_image(self, image: Tensor) -> Tensor:
        """Return vectors (pictures, width), which the transform has computed."""
        return image

    def encode_text(self, text: Tensor) -> Tensor:
        """Return the vectors (texts, width) of texts as `pack_texts` packs them."""
        vectors = torch.from_numpy(self.encoder.encode_texts(unpack_texts(text)))
        return vectors.to(text.device)


class PictureTransform:
    """Encode a picture to its vector, (width,); can be sent to a loader's processes."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __call__(self, picture: Image) -> Tensor:
        """Return the vector."""
        return torch.from_numpy(self.encoder.encode_pictures([picture]))[0]


def pack_texts(texts: str | list[str]) -> Tensor:
    """Return texts as uint8 (texts, longest): each in UTF-8, filled up with zeros."""
    encoded = [text.encode() for text in ([texts] if isinstance(texts, str) else texts)]
    packed = torch.zeros(len(encoded), max(map(len, encoded), default=0), dtype=torch.uint8)
    for row, text in zip(packed, encoded, strict=True):
        row[: len(text)] = torch.frombuffer(bytearray(text or b"\0"), dtype=torch.uint8)[
            : len(text)
        ]
    return packed


def unpack_texts(packed: Tensor) -> list[str]:
    """Return the texts that `pack_texts` has packed."""
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in packed.cpu()]


def load_polyglance(
    model_name: Model | Encoder = None,
    pretrained: str | None = None,
    cache_dir: str | None = None,
    device: str = "cpu",
) -> tuple[BenchmarkModel, PictureTransform, Callable[[str | list[str]], Tensor]]:
    """Load a model in the form of CLIP_benchmark's own loaders.

    Args:
        model_name: An encoder, or a model's name or folder; None or "" for the default model.
        pretrained: Of other loaders; ignored.
        cache_dir: Of other loaders; ignored.
        device: Torch's device, for models that run on torch.

    Returns:
        The model, the transform of pictures, and the tokenizer.
    """
    encoder = open_model(model_name or None, device=str(device))
    return BenchmarkModel(encoder), PictureTransform(encoder), pack_texts


def register() -> None:
    """Add the model type ``polyglance`` to CLIP_benchmark's command line in this process."""
    from clip_benchmark import models

    types: dict[str, Any] = models.TYPE2FUNC
    if MODEL_TYPE not in types:
        types[MODEL_TYPE] = load_polyglance
        models.MODEL_TYPES.append(MODEL_TYPE)
