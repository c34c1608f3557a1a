"""Validate what users pass to an encoder: lists of texts, lists of pictures in any form."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from polyglance.encoders.protocol import Picture
from polyglance.errors import PolyglanceError
from polyglance.vision.pictures import decode_picture, read_picture, upright_rgb

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")


def as_list(items: Sequence[T]) -> list[T]:
    """Return ``items`` as a list; a single text or picture, itself a sequence, is an error."""
    given: object = items
    is_pixels = isinstance(given, np.ndarray) and given.ndim in (2, 3)
    if is_pixels or isinstance(given, str | bytes | Path) or not isinstance(given, Iterable):
        raise PolyglanceError(f"expected a list, not {_repr(items)}: put it in brackets")
    return list(items)


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return ``texts`` as a list; raise an error unless each is a str."""
    texts = as_list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise PolyglanceError(
                f"number {number} of the texts is {_repr(text)}: give each as a str"
            )
    return texts


def open_picture(picture: Picture) -> Image.Image:
    """Return a picture in any form as upright RGB in full resolution."""
    if isinstance(picture, str | Path):
        return read_picture(picture)
    return picture_from_memory(picture)


def picture_from_memory(picture: object, *, min_side: int | None = None) -> Image.Image:
    """Return an opened picture, the bytes of a file or pixels as upright RGB.

    Args:
        picture: The picture.
        min_side: A large JPEG in bytes may be decoded smaller; see `read_picture`.

    Returns:
        The picture.
    """
    from PIL import Image

    if isinstance(picture, bytes | bytearray | memoryview):
        return decode_picture(bytes(picture), "the picture", min_side=min_side).image
    if isinstance(picture, np.ndarray):
        has_channels = picture.shape[2:] in ((), (3,), (4,)) and picture.ndim > 1
        if picture.dtype != np.uint8 or not has_channels or not picture.size:
            raise PolyglanceError(
                f"pixels are uint8 of (height, width) or (height, width, RGB or RGBA), not"
                f" {_repr(picture)}"
            )
        picture = Image.fromarray(picture)
    if not isinstance(picture, Image.Image):
        raise PolyglanceError(
            f"a picture is a file, its bytes, an opened picture or pixels, not {_repr(picture)}"
        )
    return upright_rgb(picture)


def _repr(value: object) -> str:
    """Return a short representation of a user's value."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    return reprlib.repr(value)
