"""Polyglance: one space of meaning for pictures, videos and sentences in any language.

import polyglance

encoder = polyglance.load()
encoder.encode_texts(["a dog in the snow", "雪の中の犬"])
encoder.encode_pictures(["dog.jpg"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from polyglance.encoders import Encoder

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(name_or_folder: str | Path | None = None, *, threads: int | None = None) -> Encoder:
    """Open a trained model by name or folder; without one, that which comes with Polyglance.

    ``threads`` bounds the cores that are computed on; None for all.
    """
    from polyglance.encoders import load as open_model  # not before it is asked for: it is heavier

    return open_model(name_or_folder, threads=threads)
