"""Score texts against images with a cross-encoder, to re-rank search results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.cross_encoders.model_folder import LoadedCrossEncoder, load_cross_encoder
from polyglance.cross_encoders.regions import encode_regions, tta_image_vectors
from polyglance.languages import normalise_language
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.nn.packed_pairs import PackedRows, Text
from polyglance.nn.packing import Packing

if TYPE_CHECKING:
    from PIL.Image import Image

_IMAGE_BATCH, _PAIR_BATCH = 16, 64


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """An image as the cross-encoder takes it, for any number of texts."""

    rows: Tensor
    """``(regions, hidden_size)``: the first layer's input."""
    tta_vector: NDArray[np.float32] | None
    """The dual encoder's vector over all augmentations; None without projection heads."""


class CrossEncoderReranker:
    """A trained cross-encoder as a `polyglance.search.reranking.Reranker`."""

    def __init__(self, loaded: LoadedCrossEncoder, *, dual_weight: float | None = None) -> None:
        """Wrap a loaded model; ``dual_weight`` replaces the weight that validation chose."""
        self.loaded = loaded
        tuned = loaded.config.dual_weight or 0.0
        self.dual_weight = tuned if dual_weight is None else dual_weight

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        dual_weight: float | None = None,
        backbone: str | None = None,
        device: str = "cpu",
    ) -> CrossEncoderReranker:
        """Open a run or an exported folder.

        Args:
            folder: the model; of a run, its fine-tuned weights first.
            dual_weight: weight of the dual encoder's cosine; None for the tuned one.
            backbone: as for `load_cross_encoder`.
            device: a device of torch.

        Returns:
            The re-ranker.
        """
        loaded = load_cross_encoder(folder, backbone=backbone, device=device)
        return cls(loaded, dual_weight=dual_weight)

    @torch.no_grad()
    def encode_images(self, images: Sequence[str | Path | Image]) -> list[EncodedImage]:
        """Encode images once, whatever texts they are scored against."""
        loaded, encoded = self.loaded, []
        for start in range(0, len(images), _IMAGE_BATCH):
            batch = images[start : start + _IMAGE_BATCH]
            table = encode_regions(batch, loaded.backbone, loaded.image_backbone)
            rows = loaded.model.embed_regions(table.take(np.arange(len(batch)))[0])
            vectors: Sequence[NDArray[np.float32] | None] = [None] * len(batch)
            if (heads := loaded.projection_heads) is not None:
                vectors = [*tta_image_vectors(heads, batch, loaded.backbone, loaded.image_backbone)]
            by_image = torch.split(rows.rows, rows.packing.lengths.tolist())
            # A view would keep the whole batch in memory.
            encoded += [
                EncodedImage(own.clone(), vector)
                for own, vector in zip(by_image, vectors, strict=True)
            ]
        return encoded

    def dual_scores(
        self,
        query: NDArray[np.floating],
        images: Sequence[EncodedImage],
        cosines: NDArray[np.floating],
        *,
        models: Collection[str],
    ) -> NDArray[np.float32] | None:
        """Return the cosine of a query's vector with each image's augmented vector.

        Args:
            query: unit vector of the dual encoder, ``(width,)``.
            images: what `encode_images` returned.
            cosines: ignored: one of the augmented vector's views is the library's own.
            models: fingerprints of the dual encoders that have the library's vectors of pictures.

        Returns:
            ``(images,)``, or None if this model has projection heads of none of them.
        """
        heads = self.loaded.projection_heads
        if heads is None or heads.config.model not in models:
            return None
        vectors = [image.tta_vector for image in images if image.tta_vector is not None]
        return np.asarray(np.stack(vectors) @ query, np.float32)

    @torch.no_grad()
    def score(
        self, text: str, images: Sequence[EncodedImage], *, language: str | None = None
    ) -> NDArray[np.float32]:
        """Return how well a text fits each image.

        Args:
            text: a query or caption.
            images: what `encode_images` returned.
            language: the text's language, for models with language embeddings.

        Returns:
            ``(images,)``; higher is better.
        """
        loaded, scores = self.loaded, []
        max_length = loaded.config.max_text_tokens
        ids = torch.tensor(loaded.tokenizer.encode(text, max_length=max_length))
        for start in range(0, len(images), _PAIR_BATCH):
            batch = [image.rows for image in images[start : start + _PAIR_BATCH]]
            languages = language_tensor(loaded.model, language, len(batch))
            texts = Text(ids.repeat(len(batch)), Packing.of([len(ids)] * len(batch)), languages)
            device = batch[0].device
            rows = PackedRows(torch.cat(batch), Packing.of([len(one) for one in batch], device))
            scores.append(loaded.model.score(texts.to(device), rows).float().cpu())
        return torch.cat(scores).numpy() if scores else np.zeros(0, np.float32)


def language_tensor(model: CrossEncoderModel, language: str | None, count: int) -> Tensor | None:
    """Return a language's embedding row ``count`` times, or None if the model has none for it."""
    if language is None:
        return None
    try:
        code = normalise_language(language)
    except ValueError:
        return None
    if code not in model.embedded_languages:
        return None
    ids = model.language_ids([code] * count)
    return None if ids is None else torch.from_numpy(ids)
