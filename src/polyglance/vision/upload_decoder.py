"""The process that decodes an upload, started by `polyglance.vision.uploads`.

It reads the file from standard input and writes a line of JSON and the RGB pixels to
standard output. Its limits are set before it reads the first byte.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from typing import Any

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from polyglance.utils.worker_process import limit
from polyglance.vision import heif, raw
from polyglance.vision.exif import orientation
from polyglance.vision.pictures import upright_rgb
from polyglance.vision.uploads import RAW, UNKNOWN_FORMAT, UploadError

_PLUGINS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Imported beforehand, so that a file cannot make Pillow import and run any other plugin."""


def main(settings: dict[str, Any]) -> None:
    """Decode standard input under the limits of ``settings``."""
    warnings.simplefilter("ignore")  # Pillow's own pixel limit, which is above ours
    max_side = settings["max_side"]
    limit(settings["memory"], settings["max_seconds"], 3 * max_side**2 + 4096)
    try:
        data = sys.stdin.buffer.read()
        picture = decode(data, settings["format"], settings["max_pixels"], max_side)
    except UploadError as error:
        print(json.dumps({"error": str(error)}))
        return
    out = sys.stdout.buffer
    out.write(json.dumps({"width": picture.width, "height": picture.height}).encode() + b"\n")
    out.write(picture.tobytes())


def decode(data: bytes, format_: str, max_pixels: int, max_side: int) -> Image.Image:
    """Decode a file of a known format to upright RGB, its longer side at most ``max_side``."""
    try:
        picture, turn = _open(data, format_, max_pixels, max_side)
        with picture:
            _check(picture, max_pixels)
            picture.draft(None, (max_side, max_side))  # decodes a JPEG at 1/2, 1/4 or 1/8
            picture.load()
            _check(picture, max_pixels)  # a frame may be larger than the header claimed
            return upright_rgb(_downscale(picture, max_side), turn)
    except UploadError:
        raise
    except raw.NotRawError:  # TIFF begins as most RAW files do
        raise UploadError(UNKNOWN_FORMAT) from None
    except Image.DecompressionBombError:
        raise UploadError("the picture has more pixels than allowed") from None
    except Exception as error:  # decoders raise anything on a mangled file
        if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
            raise UploadError("the picture takes more memory to decode than allowed") from None
        raise UploadError("the picture is damaged or incomplete") from None


def _open(
    data: bytes, format_: str, max_pixels: int, max_side: int
) -> tuple[Image.Image, int | None]:
    """Open a picture; return it with its orientation, or None if its EXIF block says that."""
    if format_ == RAW:
        picture, _, exif = raw.open_raw(data, min_side=max_side, max_pixels=max_pixels)
        return picture, orientation(exif)
    if format_ == heif.FORMAT:
        heif.register()
    return Image.open(io.BytesIO(data), formats=(format_,)), None


def _check(picture: Image.Image, max_pixels: int) -> None:
    width, height = picture.size
    if width * height > max_pixels:
        raise UploadError(
            f"the picture has {width} x {height} pixels, more than the {max_pixels:,} allowed"
        )


def _downscale(picture: Image.Image, max_side: int) -> Image.Image:
    """Scale down first: every later step would take the full picture's memory again."""
    if max(picture.size) <= max_side:
        return picture
    if picture.mode.startswith("I;16"):
        picture = _to_eight_bits(picture)
    elif picture.has_transparency_data:
        picture = picture.convert("RGBA")
    elif picture.mode in ("1", "P"):  # palette indices cannot be averaged
        picture = picture.convert("RGB")
    scale = max_side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)


def _to_eight_bits(picture: Image.Image) -> Image.Image:
    """Convert 16-bit grey, for which Pillow has no resampling filter."""
    import numpy as np

    grey = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if exif := picture.info.get("exif"):
        grey.info["exif"] = exif
    return grey


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
