"""LangChain: `Embeddings` of texts, and of pictures.

from langchain_core.vectorstores import InMemoryVectorStore
from polyglance.integrations.langchain import PolyglanceEmbeddings

store = InMemoryVectorStore(PolyglanceEmbeddings())
store.add_texts(["a dog on the beach", "a cup of tea"])
store.similarity_search("ein Hund am Strand", k=1)
"""

from __future__ import annotations

from collections.abc import Sequence

from polyglance.encoders import Encoder, Picture
from polyglance.errors import MissingExtraError
from polyglance.integrations.models import Model, open_model

try:
    from langchain_core.embeddings import Embeddings
except ImportError as error:
    raise MissingExtraError("LangChain's Embeddings", "langchain") from error


class PolyglanceEmbeddings(Embeddings):
    """A dual encoder as LangChain's embedding model; vectors have length 1."""

    def __init__(self, model: Model | Encoder = None, *, device: str = "cpu") -> None:
        """Open a model.

        Args:
            model: An encoder, or a model's name or folder; None for the default model.
            device: Torch's device, for models that run on torch.
        """
        self.encoder = open_model(model, device=device)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text."""
        vectors: list[list[float]] = self.encoder.encode_texts(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query, in any language."""
        return self.embed_documents([text])[0]

    def embed_image(self, uris: Sequence[Picture]) -> list[list[float]]:
        """Return a vector for each picture, as stores with ``add_images`` call it."""
        vectors: list[list[float]] = self.encoder.encode_pictures(uris).tolist()
        return vectors
