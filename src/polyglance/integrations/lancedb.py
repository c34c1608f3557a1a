"""LanceDB: an embedding function of its registry, for columns of texts or of pictures.

    import lancedb
    from lancedb.pydantic import LanceModel, Vector
    from polyglance.integrations.lancedb import PolyglanceEmbeddings

    embed = PolyglanceEmbeddings.create(source="pictures")

    class Photo(LanceModel):
        file: str = embed.SourceField()
        vector: Vector(embed.ndims()) = embed.VectorField()

    photos = lancedb.connect("photos.lance").create_table("photos", schema=Photo)
    photos.add([{"file": "dog.jpg"}, {"file": "tea.jpg"}])
    photos.search("ein Hund am Strand").metric("cosine").limit(1).to_list()

Import this module before a table on disk is opened: its metadata names the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.errors import MissingExtraError
from polyglance.integrations.models import check_fingerprint, open_model, stored_name

try:
    from lancedb.embeddings import EmbeddingFunction, register
    from pydantic import PrivateAttr
except ImportError as error:
    raise MissingExtraError("LanceDB's embedding function", "lancedb") from error


@register("polyglance")
class PolyglanceEmbeddings(EmbeddingFunction):
    """A dual encoder as LanceDB's embedding function; `create` it, as all of the registry."""

    model: str | None = None
    """A model's name or folder; None for the default model."""
    source: Literal["texts", "pictures"] = "texts"
    """What the source column holds; pictures as paths or as the bytes of files."""
    device: str = "cpu"
    """Torch's device, for models that run on torch."""
    fingerprint: str | None = None
    """Of the model that made a table, stored with it; another one is an error."""
    max_retries: int = 0
    """A model on this machine gives the same error again."""
    _encoder: Any = PrivateAttr()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._encoder = open_model(self.model, device=self.device)
        check_fingerprint(self._encoder, self.fingerprint, "the table")

    @classmethod
    def create(cls, **settings: Any) -> PolyglanceEmbeddings:
        """Open a model by the class's fields; a table stores them with its fingerprint."""
        model = stored_name(settings.pop("model", None))
        if "fingerprint" not in settings:
            device = settings.get("device", "cpu")
            settings["fingerprint"] = open_model(model, device=device).fingerprint
        created: PolyglanceEmbeddings = super().create(model=model, **settings)
        return created

    def ndims(self) -> int:
        """Return the dimension of the vectors."""
        encoder: Encoder = self._encoder
        return encoder.width

    def compute_query_embeddings(
        self, query: object, *args: object, **kwargs: object
    ) -> list[NDArray[np.float32]]:
        """Return the vector of a query: a text, or a picture as path, bytes, pixels or opened."""
        if isinstance(query, str):
            return list(self._encoder.encode_texts([query]))
        return list(self._encoder.encode_pictures([query]))

    def compute_source_embeddings(
        self, values: Any, *args: object, **kwargs: object
    ) -> list[NDArray[np.float32]]:
        """Return the vectors of values of the source column."""
        items: Sequence[Any] = self.sanitize_input(values)
        items = [items] if isinstance(items, bytes | Path) else list(items)
        if self.source == "texts":
            return list(self._encoder.encode_texts(items))
        return list(self._encoder.encode_pictures(items))
