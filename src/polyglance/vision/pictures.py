"""Read picture files of any kind into squares of RGB pixels.

`read_picture` handles EXIF rotation, transparency, grey, 16-bit, palette, CMYK, animated
(first frame) and truncated files, and with the extra ``photos`` HEIC and RAW files. Anything
wrong with a file raises a `PictureError` of one sentence.

Of a truncated file at least `MIN_DECODED_FRACTION` of the rows must be there; the rest is
filled with grey, a neutral input for backbones. A truncated progressive JPEG is always an
error, because decoders return nothing of it.
"""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from polyglance.errors import DataError, PolyglanceError
from polyglance.vision import heif, raw
from polyglance.vision.exif import SIDEWAYS, Metadata, exif_of, orientation, read_metadata

if TYPE_CHECKING:
    # Decoders of uploads import this module and rarely need numpy, which takes longer to import
    # than the rest together.
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

Box = tuple[float, float, float, float]
Resize = Literal["squash", "centre"]

SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
    | heif.HEIF_SUFFIXES
    | raw.RAW_SUFFIXES
)
"""Suffixes of the files that are taken as pictures when a folder is scanned."""

_PLUGINS = {
    "AVIF": "AvifImagePlugin", "BMP": "BmpImagePlugin", "GIF": "GifImagePlugin",
    "JPEG": "JpegImagePlugin", "JPEG2000": "Jpeg2KImagePlugin", "PNG": "PngImagePlugin",
    "PPM": "PpmImagePlugin", "TIFF": "TiffImagePlugin", "WEBP": "WebPImagePlugin",
}  # fmt: skip
"""Accepted formats, whatever the suffix, and Pillow's modules that read them.

Some others run programs (EPS) or open other files, and to import them all takes longer than
Pillow itself.
"""

MAX_PIXELS = 100_000_000
"""Larger pictures are refused: they decode to 400 MB. A JPEG counts at its decoded size."""

MIN_DECODED_FRACTION = 0.75
"""Fraction of a truncated picture's rows that must be there."""

MISSING_PHOTOS_EXTRA = (
    "HEIC and RAW pictures need optional packages: pip install 'polyglance[photos]'"
)
_ORIENTED = ("exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp")
"""Where Pillow finds an orientation; taken away from a picture that was turned by it."""
_GREY = (127, 127, 127)
_HEAD = 64
"""Bytes that tell the formats apart."""
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


class PictureError(DataError):
    """A file that cannot be read as a picture."""


@dataclass(frozen=True, slots=True, eq=False)
class Square:
    """A picture as the input of a backbone."""

    pixels: NDArray[np.uint8]
    """(size, size, RGB)."""
    frame: Box
    """The part of the picture in the square, in fractions of its width and height."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPicture:
    """A picture with what its file says about it."""

    image: Image.Image
    """Upright RGB, possibly smaller than the picture."""
    width: int
    height: int
    """Size of the upright picture in the file."""
    metadata: Metadata
    """When, where and with what it was taken, by its EXIF block."""


def read_square(path: str | Path, size: int, resize: Resize = "squash") -> Square:
    """Read a picture file into a square of ``size`` pixels per side."""
    return to_square(read_picture(path, min_side=decoding_side(size)), size, resize)


def decoding_side(size: int) -> int:
    """Return the least side at which a picture is decoded for a square of ``size``.

    Resampling from nearly one and a half times the size hides the coarseness of a JPEG decoded at
    a fraction: benchmarks/speed/photo_speed.py measures cosines of vectors with those of whole
    pictures. A JPEG of 4032 x 3024 pixels is decoded at an eighth for a square of 256.
    """
    return 29 * size // 20


def to_square(picture: Image.Image, size: int, resize: Resize = "squash") -> Square:
    """Resize an RGB picture to a square: squash the whole of it, or crop its centre."""
    import numpy as np
    from PIL import Image

    if resize not in get_args(Resize):
        raise PolyglanceError(f"resize must be 'squash' or 'centre', not {resize!r}")
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
    path: str | Path, *, min_side: int | None = None, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Read a picture file as upright RGB, transparent parts on white.

    Args:
        path: The file.
        min_side: If given, a large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, many
            times faster, while both sides keep at least so many pixels.
        max_pixels: Larger pictures raise a `PictureError`.
    """
    return _read(Path(path), Path(path), min_side, max_pixels).image


def decode_picture(
    data: bytes, path: str | Path, *, min_side: int | None = None, max_pixels: int = MAX_PIXELS
) -> DecodedPicture:
    """Decode the content of a picture file; ``path`` is its name in errors. See `read_picture`."""
    return _read(io.BytesIO(data), Path(path), min_side, max_pixels)


def can_read_suffix(suffix: str) -> bool:
    """Return whether what files with a suffix need is installed."""
    if suffix in heif.HEIF_SUFFIXES:
        return heif.can_read_heif()
    return suffix not in raw.RAW_SUFFIXES or raw.can_read_raw()


def _read(
    source: Path | io.BytesIO, path: Path, min_side: int | None, max_pixels: int
) -> DecodedPicture:
    from PIL import Image, UnidentifiedImageError

    try:
        opened, full, exif = _open(source, path, min_side, max_pixels)
        with opened:
            width, height = opened.size
            if width * height > max_pixels:
                raise PictureError(_too_large(path, width, height, max_pixels))
            top, bottom = _decode(opened)
            fraction = (bottom - top) / height
            if fraction < MIN_DECODED_FRACTION:
                raise PictureError(f"{path}: the file is truncated, only {fraction:.0%} is there")
            picture = _to_rgb(opened)
            width, height = picture.size
            picture.paste(_GREY, (0, 0, width, top))
            picture.paste(_GREY, (0, bottom, width, height))
            if exif is None:
                exif = exif_of(opened)
                full = full[::-1] if orientation(exif) in SIDEWAYS else full
            return DecodedPicture(_upright(picture, orientation(exif)), *full, read_metadata(exif))
    except PictureError:
        raise
    except UnidentifiedImageError:
        empty = not (path.stat().st_size if isinstance(source, Path) else source.getbuffer().nbytes)
        raise PictureError(
            f"{path}: {'the file is empty' if empty else 'is not a picture of a known kind'}"
        ) from None
    except Image.DecompressionBombError:
        raise PictureError(f"{path}: claims to have too many pixels to be decoded") from None
    except ImportError as error:  # the limit on memory has no room for the decoder's libraries
        raise MemoryError from error
    except raw.RawError as error:
        raise PictureError(f"{path}: {error}") from error
    except OSError as error:
        raise PictureError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # decoders raise anything on a mangled file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PictureError(f"{path}: cannot be read as a picture ({reason})") from error


def _open(
    source: Path | io.BytesIO, path: Path, min_side: int | None, max_pixels: int
) -> tuple[Image.Image, tuple[int, int], Image.Exif | None]:
    """Open a picture; return it with its full size and its EXIF block.

    Without an EXIF block, it is yet to be read, after the pixels, and the size is not upright.
    """
    from PIL import Image

    if isinstance(source, Path):
        with source.open("rb") as file:
            head = file.read(_HEAD)
    else:
        head = bytes(source.getbuffer()[:_HEAD])
    if path.suffix.lower() in raw.RAW_SUFFIXES and raw.is_raw(head):
        if not raw.can_read_raw():
            raise PictureError(f"{path}: {MISSING_PHOTOS_EXTRA}")
        data = source.read_bytes() if isinstance(source, Path) else source.getvalue()
        return raw.open_raw(data, min_side=min_side, max_pixels=max_pixels)
    if heif.is_heif(head):
        return _open_heif(source, path, min_side, max_pixels)
    opened = Image.open(source, formats=_formats())
    full = opened.size
    if min_side is not None:
        opened.draft(None, (min_side, min_side))
    if opened.format in ("JPEG", "MPO") and isinstance(source, io.BytesIO):
        opened.decodermaxblock = source.getbuffer().nbytes  # at once, not 64 KB at a time
    return opened, full, None


def _open_heif(
    source: Path | io.BytesIO, path: Path, min_side: int | None, max_pixels: int
) -> tuple[Image.Image, tuple[int, int], Image.Exif]:
    """Open a HEIC file; decoders turn it upright."""
    from PIL import Image, UnidentifiedImageError

    if not heif.can_read_heif():
        raise PictureError(f"{path}: {MISSING_PHOTOS_EXTRA}")
    heif.register()
    try:
        opened: Image.Image = Image.open(source, formats=(heif.FORMAT,))
    except UnidentifiedImageError:
        raise PictureError(f"{path}: the HEIC file is damaged or incomplete") from None
    full, exif = opened.size, exif_of(opened)
    if min_side is not None:
        data = source.read_bytes() if isinstance(source, Path) else source.getvalue()
        reduced = heif.decode_reduced(data, min_side=min_side, max_pixels=max_pixels)
        if reduced is not None:
            opened.close()
            opened = reduced
    return opened, full, exif


def downscale(image: Image.Image, min_side: int) -> Image.Image:
    """Reduce a large image by an integer factor, its shorter side staying ``min_side`` or more.

    Many images wait for the encoder at a time; at full size they would fill the memory.
    """
    factor = min(image.size) // min_side
    return image.reduce(factor) if factor > 1 else image


def upright_rgb(picture: Image.Image, turn: int | None = None) -> Image.Image:
    """Convert an opened picture to upright RGB, transparent parts on white.

    The orientation is ``turn``, as EXIF counts, or by default that of the EXIF block.
    """
    if not (picture.width and picture.height):
        raise PictureError(f"a picture of {picture.width} x {picture.height} pixels is empty")
    try:
        turn = orientation(exif_of(picture)) if turn is None else turn
        return _upright(_to_rgb(picture), turn)
    except Exception as error:  # an opened file is decoded only now
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PictureError(f"the opened picture cannot be decoded ({reason})") from error


@cache
def _formats() -> tuple[str, ...]:
    """Return the accepted formats that this build of Pillow has."""
    from PIL import Image

    for plugin in _PLUGINS.values():
        with suppress(ImportError):
            import_module(f"PIL.{plugin}")
    return tuple(name for name in _PLUGINS if name in Image.OPEN)


def _too_large(path: Path, width: int, height: int, limit: int) -> str:
    return f"{path}: {width} x {height} pixels are more than the limit of {limit:,}"


def _decode(picture: Image.Image) -> tuple[int, int]:
    """Decode the pixels and return the range of rows that were decoded."""
    from PIL import ImageFile

    try:
        picture.load()
    except OSError as error:
        if "out of memory" in str(error):
            raise MemoryError from error
        if not isinstance(picture, ImageFile.ImageFile):
            raise
        # Rows decoded so far are in place and the others are zero. Without tiles left to decode,
        # Pillow takes the picture as loaded.
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
    """Scale 16-bit grey to 8 bits; other integers and floats from their minimum to maximum."""
    import numpy as np
    from PIL import Image

    values = np.asarray(picture).astype(np.float64)
    low, high = 0.0, 65535.0
    if not picture.mode.startswith("I;16"):
        values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
    grey = (values - low) * (255 / max(high - low, 1e-12))
    return Image.fromarray(grey.round().astype(np.uint8)).convert("RGB")


def _upright(picture: Image.Image, turn: int) -> Image.Image:
    from PIL import Image

    transposes = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    transpose = transposes.get(turn)
    if transpose is None:
        return picture
    turned = picture.transpose(transpose)
    for name in _ORIENTED:
        turned.info.pop(name, None)
    return turned
