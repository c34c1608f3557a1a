"""The process that decodes an upload, as `polyglance.vision.uploads` starts it.

It reads the file from standard input and writes a line of JSON and the RGB pixels to
standard output. Limits are set before the first byte is looked at.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from typing import Any

import numpy as np
from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from polyglance.vision.pictures import upright_rgb
from polyglance.vision.uploads import UploadError

_PLUGINS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Imported beforehand: what a file may make Pillow import and run is these and no others."""


def main(told: dict[str, Any]) -> None:
    """Decode standard input as it is told."""
    warnings.simplefilter("ignore")  # of Pillow's own limit on pixels: ours is below it
    limit(told["memory"], told["seconds"], 3 * told["longest"] ** 2 + 4096)
    try:
        picture = decode(
            sys.stdin.buffer.read(), told["kind"], told["most_pixels"], told["longest"]
        )
    except UploadError as error:
        print(json.dumps({"error": str(error)}))
        return
    out = sys.stdout.buffer
    out.write(json.dumps({"width": picture.width, "height": picture.height}).encode() + b"\n")
    out.write(picture.tobytes())


def limit(memory: int, seconds: int, output: int) -> None:
    """Take from this process what it must not have; a limit that the system lacks is passed."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, output),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):  # macOS has no limit on memory
            continue


def decode(data: bytes, kind: str, most_pixels: int, longest: int) -> Image.Image:
    """The picture of a file: upright RGB, its longer side no longer than ``longest``."""
    try:
        with Image.open(io.BytesIO(data), formats=(kind,)) as picture:
            _check(picture, most_pixels)
            picture.draft(None, (longest, longest))  # of a JPEG, at once a half, a quarter ...
            picture.load()
            _check(picture, most_pixels)  # a decoder may find a frame larger than the header said
            return upright_rgb(_shrunk(picture, longest))
    except UploadError:
        raise
    except Image.DecompressionBombError:
        raise UploadError("the picture has more pixels than allowed") from None
    except Exception as error:  # decoders raise anything on a mangled file, with words for nobody
        if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
            raise UploadError("the picture takes more memory to decode than allowed") from None
        raise UploadError("the picture is damaged, or not all of it is there") from None


def _check(picture: Image.Image, most_pixels: int) -> None:
    width, height = picture.size
    if width * height > most_pixels:
        raise UploadError(
            f"the picture has {width} x {height} pixels, more than the {most_pixels:,} allowed"
        )


def _shrunk(picture: Image.Image, longest: int) -> Image.Image:
    """Small before anything else is done to it: each further step would take its memory again."""
    if max(picture.size) <= longest:
        return picture
    if picture.mode.startswith("I;16"):
        picture = _eight_bits(picture)
    elif picture.has_transparency_data:
        picture = picture.convert("RGBA")
    elif picture.mode in ("1", "P"):  # numbers of colours, of which there is no mean
        picture = picture.convert("RGB")
    scale = longest / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)


def _eight_bits(picture: Image.Image) -> Image.Image:
    """16-bit grey, for which there is no filter, as a photograph is."""
    grey = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if exif := picture.info.get("exif"):
        grey.info["exif"] = exif
    return grey


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
