"""Polyglance: one space of meaning for pictures, videos and sentences in any language.

import polyglance

library = polyglance.Library("my.polyglance")
library.add("photos")
library.search("собака на пляже", k=20)

encoder = polyglance.load()
encoder.encode_texts(["a dog in the snow", "雪の中の犬"])
encoder.encode_pictures(["dog.jpg"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyglance.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from polyglance.encoders import Encoder
    from polyglance.search.library import Library

__all__ = ["Library", "__version__", "load"]


def load(
    name_or_folder: str | Path | None = None, *, threads: int | None = None, device: str = "cpu"
) -> Encoder:
    """Open a trained model by name or folder; without one, that which comes with Polyglance.

    The folder may be of `polyglance export`, transformers, open_clip or
    sentence-transformers. ``threads`` bounds the cores that are computed on; None for
    all. ``device`` is torch's, for models that compute with torch.
    """
    from polyglance.encoders import load as open_model  # not before it is asked for: it is heavier

    return open_model(name_or_folder, threads=threads, device=device)


def __getattr__(name: str) -> Any:
    """`Library` is imported when it is first asked for."""
    if name == "Library":
        from polyglance.search.library import Library

        return Library
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
