"""Pictures of every kind, safely, into squares of RGB pixels.

`read_picture` opens whatever Pillow knows: turned by EXIF, transparent, grey,
16-bit, with a palette, CMYK, animated (its first frame), cut short. Whatever
is wrong with a file comes out as a `PictureError` of one sentence.

A file that was cut short is kept if most of its rows were decoded: the rest is
filled with the grey that backbones take for nothing. With less it is an error,
as is a progressive JPEG without its end, of which decoders give nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError

if TYPE_CHECKING:
    from PIL import Image

Box = tuple[float, float, float, float]
Resize = Literal["squash", "centre"]

SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
"""File names that are taken for pictures when a folder is walked."""

_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""What is opened, by whatever name; of the others some run programs (EPS) or reach elsewhere."""

MAX_PIXELS = 100_000_000
"""Larger pictures are refused: decoded they would fill 400 MB. A JPEG counts as it is decoded."""

MOST = 0.75
"""The part of a cut-short picture's rows that must be there for it to be kept."""

_GREY = (127, 127, 127)
_ORIENTATION = 0x0112
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


class PictureError(DataError):
    """A file that cannot be read as a picture."""


@dataclass(frozen=True, slots=True, eq=False)
class Square:
    """A picture as a backbone takes it."""

    pixels: NDArray[np.uint8]
    """Size x size x RGB."""
    frame: Box
    """The part of the picture that the square shows, in fractions of its width and height."""


def read_square(path: str | Path, size: int, resize: Resize = "squash") -> Square:
    """Read a picture file into a square of ``size`` pixels a side."""
    # Twice the size: what is left for the resizing hides what the quick decoder does coarsely.
    return to_square(read_picture(path, at_least=2 * size), size, resize)


def to_square(picture: Image.Image, size: int, resize: Resize = "squash") -> Square:
    """Resize an RGB picture to a square: the whole of it squashed, or its central square."""
    from PIL import Image

    if resize not in get_args(Resize):
        raise PolyglanceError(f"pictures are resized by 'squash' or 'centre', not {resize!r}")
    frame = _WHOLE
    if resize == "centre":
        width, height = picture.size
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        frame = (left / width, top / height, (left + side) / width, (top + side) / height)
        picture = picture.crop((left, top, left + side, top + side))
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return Square(np.asarray(picture), frame)


def read_picture(
    path: str | Path, *, at_least: int | None = None, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Open a picture file as upright RGB, transparent parts on white.

    With ``at_least`` a large JPEG is decoded at a half, a quarter or an eighth
    of its size, many times faster, as long as both sides keep so many pixels.
    """
    from PIL import Image, UnidentifiedImageError

    path = Path(path)
    try:
        with Image.open(path, formats=_formats()) as opened:
            if at_least is not None:
                opened.draft(None, (at_least, at_least))
            width, height = opened.size
            if width * height > max_pixels:
                raise PictureError(_too_large(path, width, height, max_pixels))
            top, bottom = _decode(opened)
            there = (bottom - top) / height
            if there < MOST:
                raise PictureError(f"{path}: the file is cut short, only {there:.0%} is there")
            picture = _to_rgb(opened)
            picture.paste(_GREY, (0, 0, width, top))
            picture.paste(_GREY, (0, bottom, width, height))
            return _upright(picture, _orientation(opened))
    except PictureError:
        raise
    except UnidentifiedImageError:
        empty = path.stat().st_size == 0
        raise PictureError(
            f"{path}: {'the file is empty' if empty else 'is not a picture of a known kind'}"
        ) from None
    except Image.DecompressionBombError:
        raise PictureError(f"{path}: claims to be too large a picture to be decoded") from None
    except OSError as error:
        raise PictureError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # decoders raise anything on a mangled file
        reason = str(error) or type(error).__name__
        raise PictureError(f"{path}: cannot be read as a picture ({reason})") from error


def upright_rgb(picture: Image.Image) -> Image.Image:
    """An opened picture as `read_picture` gives files: upright RGB, transparent parts on white."""
    if not (picture.width and picture.height):
        raise PictureError(f"a picture of {picture.width} x {picture.height} pixels shows nothing")
    try:
        return _upright(_to_rgb(picture), _orientation(picture))
    except Exception as error:  # a file that was only opened is decoded now
        reason = str(error) or type(error).__name__
        raise PictureError(f"the opened picture cannot be decoded ({reason})") from error


@cache
def _formats() -> tuple[str, ...]:
    """The formats that this build of Pillow has."""
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _too_large(path: Path, width: int, height: int, limit: int) -> str:
    return f"{path}: {width} x {height} pixels are more than the limit of {limit:,}"


def _decode(picture: Image.Image) -> tuple[int, int]:
    """Decode the pixels and return the first row that is there and the first that is not again."""
    from PIL import ImageFile

    try:
        picture.load()
    except OSError:
        if not isinstance(picture, ImageFile.ImageFile):
            raise
        # The rows decoded so far are in place and the others are zero. Without tiles left to
        # decode Pillow takes the picture as loaded.
        picture.tile = []
        filled = picture.getbbox(alpha_only=False)
        return (filled[1], filled[3]) if filled else (0, 0)
    return 0, picture.height


def _to_rgb(picture: Image.Image) -> Image.Image:
    from PIL import Image

    if picture.mode.startswith(("I", "F")):
        return _deep_to_rgb(picture)
    if picture.has_transparency_data:
        rgba = picture.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return picture.convert("RGB")


def _deep_to_rgb(picture: Image.Image) -> Image.Image:
    """16-bit grey to 8; deeper integers and floats, whose range no format says, from end to end."""
    from PIL import Image

    values = np.asarray(picture).astype(np.float64)
    low, high = 0.0, 65535.0
    if not picture.mode.startswith("I;16"):
        values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
    grey = (values - low) * (255 / max(high - low, 1e-12))
    return Image.fromarray(grey.round().astype(np.uint8)).convert("RGB")


def _orientation(picture: Image.Image) -> int:
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # a mangled EXIF block is no reason to lose the picture
        return 1


def _upright(picture: Image.Image, orientation: int) -> Image.Image:
    from PIL import Image

    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    turn = turns.get(orientation)
    return picture if turn is None else picture.transpose(turn)
