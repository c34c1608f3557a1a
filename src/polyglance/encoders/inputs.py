"""What a user may hand to an encoder, checked: lists of texts, lists of pictures in any form."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from polyglance.encoders.protocol import Picture
from polyglance.errors import PolyglanceError
from polyglance.vision.pictures import read_picture, upright_rgb

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")


def listed(items: Sequence[T]) -> list[T]:
    """What was given, as a list; one alone may have a length, too, of letters or of rows."""
    given: object = items
    pixels = isinstance(given, np.ndarray) and given.ndim in (2, 3)
    if pixels or isinstance(given, str | bytes | Path) or not isinstance(given, Iterable):
        raise PolyglanceError(f"expected a list and was given {_shown(items)}: put it in brackets")
    return list(items)


def listed_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list in which each is one."""
    texts = listed(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise PolyglanceError(
                f"number {number} of the texts is {_shown(text)}: give each as a str"
            )
    return texts


def opened(picture: Picture) -> Image.Image:
    """A picture in whatever form it was given, upright and in RGB, with all its pixels."""
    return read_picture(picture) if isinstance(picture, str | Path) else in_memory(picture)


def in_memory(picture: object) -> Image.Image:
    """An opened picture or pixels, as files are read."""
    from PIL import Image

    if isinstance(picture, np.ndarray):
        colours = picture.shape[2:] in ((), (3,), (4,)) and picture.ndim > 1
        if picture.dtype != np.uint8 or not colours or not picture.size:
            raise PolyglanceError(
                f"pixels are uint8 of (height, width) or (height, width, RGB or RGBA), not"
                f" {_shown(picture)}"
            )
        picture = Image.fromarray(picture)
    if not isinstance(picture, Image.Image):
        raise PolyglanceError(
            f"a picture is a file, an opened picture or pixels, not {_shown(picture)}"
        )
    return upright_rgb(picture)


def _shown(value: object) -> str:
    """What somebody gave us, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    return reprlib.repr(value)
