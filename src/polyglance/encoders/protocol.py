"""The `Encoder` protocol: anything that turns sentences and pictures into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

    from polyglance.encoders.model_folder import FeatureInput

Vectors: TypeAlias = NDArray[np.float32]
Picture: TypeAlias = "Image | str | Path | bytes | NDArray[np.uint8]"
"""An opened picture, a file, the bytes of one, or pixels (height, width, RGB)."""


@runtime_checkable
class Encoder(Protocol):
    """A dual encoder: the dot product of two of its vectors is their similarity."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def width(self) -> int:
        """Dimension of the vectors."""

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the vectors; models with equal ones share them."""

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """Encode texts.

        Args:
            texts: Any number of texts; those beyond the model's maximum length are truncated.
            language: The language of all texts, for a model of words, which otherwise
                detects it for each text. A model of sub-words ignores it.

        Returns:
            Unit vectors, (texts, width).
        """

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """Encode pictures.

        Args:
            pictures: Files, their bytes, opened pictures, or pixels as uint8 (height, width,
                RGB).

        Returns:
            Unit vectors, (pictures, width).
        """


def picture_models_of(encoder: Encoder) -> frozenset[str]:
    """Return the fingerprints of the models that have an encoder's vectors of pictures."""
    own: frozenset[str] = getattr(encoder, "picture_models", frozenset((encoder.fingerprint,)))
    return own


@runtime_checkable
class FeatureEncoder(Protocol):
    """An encoder of sentences, and of features extracted beforehand in place of pictures."""

    @property
    def feature_input(self) -> FeatureInput | None:
        """The features that it takes; None if it takes pictures."""

    def encode_features(self, features: Sequence[NDArray[np.floating[Any]]]) -> Vectors:
        """Encode pictures or clips by their features.

        Args:
            features: Of each picture or clip, (regions or seconds, width).

        Returns:
            Unit vectors, (items, width).
        """


class PicklableEncoder:
    """Base class of encoders that load their networks into private cached properties.

    These are left out of a pickle and loaded again when first needed, so that an encoder
    can be sent to another process before and after use.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if not (
                name.startswith("_")
                and isinstance(getattr(type(self), name, None), cached_property)
            )
        }
