"""Chroma: an embedding function of texts and pictures, and a loader of picture files.

    import chromadb
    from polyglance.integrations.chroma import PictureLoader, PolyglanceEmbeddingFunction

    photos = chromadb.Client().create_collection(
        "photos", embedding_function=PolyglanceEmbeddingFunction(), data_loader=PictureLoader()
    )
    photos.add(ids=["1", "2"], uris=["dog.jpg", "tea.jpg"])
    photos.query(query_texts=["ein Hund am Strand"], n_results=1)

Importing this module registers the function, so that collections on disk open with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.inputs import open_picture
from polyglance.errors import MissingExtraError
from polyglance.integrations.models import Model, check_fingerprint, open_model, stored_name

try:
    from chromadb.api.types import DataLoader, EmbeddingFunction
    from chromadb.utils.embedding_functions import register_embedding_function
except ImportError as error:
    raise MissingExtraError("Chroma's embedding function", "chroma") from error


@register_embedding_function
class PolyglanceEmbeddingFunction(EmbeddingFunction):
    """A dual encoder as Chroma's embedding function; the collection stores the model's name."""

    def __init__(
        self, model: Model = None, *, device: str = "cpu", fingerprint: str | None = None
    ) -> None:
        """Open a model.

        Args:
            model: A model's name or folder; None for the default model.
            device: Torch's device, for models that run on torch.
            fingerprint: Of the model that made a collection; another one is an error.
        """
        self.model, self.device = stored_name(model), device
        self.encoder = open_model(model, device=device)
        check_fingerprint(self.encoder, fingerprint, "the collection")

    def __call__(self, input: Sequence[str | NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
        """Return the vectors of documents, or of pictures as pixels (height, width, RGB)."""
        vectors = np.empty((len(input), self.encoder.width), np.float32)
        texts = [n for n, item in enumerate(input) if isinstance(item, str)]
        pictures = [n for n, item in enumerate(input) if not isinstance(item, str)]
        if texts:
            vectors[texts] = self.encoder.encode_texts([str(input[n]) for n in texts])
        if pictures:
            vectors[pictures] = self.encoder.encode_pictures([input[n] for n in pictures])
        return list(vectors)

    @staticmethod
    def name() -> str:
        """Return the name under which collections know the function."""
        return "polyglance"

    def default_space(self) -> str:
        """Return Chroma's name of the distance, 1 minus the cosine."""
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        """Return what a collection stores: model, device and fingerprint."""
        fingerprint = self.encoder.fingerprint
        return {"model": self.model, "device": self.device, "fingerprint": fingerprint}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> PolyglanceEmbeddingFunction:
        """Open the function of a stored collection."""
        return PolyglanceEmbeddingFunction(
            config.get("model"),
            device=config.get("device", "cpu"),
            fingerprint=config.get("fingerprint"),
        )


class PictureLoader(DataLoader):
    """Chroma's data loader of picture files: upright, in RGB, in every format we read."""

    def __call__(self, uris: Sequence[str | None]) -> list[NDArray[np.uint8] | None]:
        """Return the pixels of each file, (height, width, RGB)."""
        return [None if uri is None else np.asarray(open_picture(uri)) for uri in uris]
