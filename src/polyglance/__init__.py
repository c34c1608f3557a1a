"""Polyglance: one vector space for pictures, videos and sentences in any language.

import polyglance

library = polyglance.Library("my.polyglance")
library.add("photos")
library.search("собака на пляже", k=20)

encoder = polyglance.load()
encoder.encode_texts(["a dog in the snow", "雪の中の犬"])
encoder.encode_pictures(["dog.jpg"])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyglance.errors import PolyglanceError
from polyglance.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from polyglance.cross_encoders import CrossEncoder
    from polyglance.encoders import Encoder
    from polyglance.search.library import Library

__all__ = ["CrossEncoder", "Library", "PolyglanceError", "__version__", "load"]

_LAZY = {"CrossEncoder": "polyglance.cross_encoders", "Library": "polyglance.search.library"}
"""Modules that are imported when their class is first used: they are slow to import."""


def load(
    name_or_folder: str | Path | None = None, *, threads: int | None = None, device: str = "cpu"
) -> Encoder:
    """Load a dual encoder, which turns sentences and pictures into vectors.

    Args:
        name_or_folder: A model's name, or a folder written by `polyglance export`,
            transformers, open_clip or sentence-transformers; None for the model that comes
            with Polyglance.
        threads: Number of CPU threads; None for all cores.
        device: ``cpu``, or a device of torch such as ``cuda``.

    Returns:
        The encoder, with ``encode_texts`` and ``encode_pictures``.
    """
    from polyglance.encoders import load as load_encoder  # slow to import

    return load_encoder(name_or_folder, threads=threads, device=device)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
