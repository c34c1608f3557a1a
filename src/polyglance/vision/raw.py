"""RAW files of cameras, read by LibRaw through rawpy (the extra ``photos``).

A camera stores the picture as it would have saved it, a JPEG, beside the values of its sensor.
That preview is read, at the size that is wanted; a file without one, or with a small one only, is
developed at half its size.
"""

from __future__ import annotations

import io
import struct
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from polyglance.vision.exif import ORIENTATION, SIDEWAYS, exif_of, orientation

if TYPE_CHECKING:
    from PIL.Image import Exif, Image

RAW_SUFFIXES = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos", ".mrw"}
    | {".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"}
)
MIN_PREVIEW_SIDE = 320
"""Pixels of a preview's shorter side; smaller ones are icons for the camera's display."""

_TIFF_HEADS = (b"II*\0", b"MM\0*", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")
"""TIFF as written by most cameras, and as Olympus and Panasonic write it."""
_FUJI, _MINOLTA, _SIGMA = b"FUJIFILMCCD-RAW ", b"\0MRM", b"FOVb"
_CANON = b"ftypcrx "
_FLIPS = {3: 3, 5: 8, 6: 6}
"""EXIF orientation for LibRaw's code of a rotation."""


class RawError(Exception):
    """A file that LibRaw cannot read, and why."""


class NotRawError(RawError):
    """A file of another kind, such as an ordinary TIFF."""


def can_read_raw() -> bool:
    """Return whether rawpy is installed."""
    return find_spec("rawpy") is not None


def is_raw(head: bytes) -> bool:
    """Return whether a file that begins so may be a RAW file; TIFF begins alike."""
    return head.startswith((*_TIFF_HEADS, _FUJI, _MINOLTA, _SIGMA)) or head[4:12] == _CANON


def open_raw(
    data: bytes, *, min_side: int | None, max_pixels: int
) -> tuple[Image, tuple[int, int], Exif]:
    """Decode a RAW file.

    Args:
        data: The content of the file.
        min_side: A preview is decoded at a fraction of its size, while both sides keep at least
            so many pixels.
        max_pixels: Larger pictures raise a `RawError`.

    Returns:
        The picture, a preview not yet decoded; the size of the upright picture; and the EXIF
        block, whose orientation is that of the returned picture.
    """
    import rawpy
    from PIL import Image

    try:
        with rawpy.imread(io.BytesIO(data)) as raw:
            sizes = raw.sizes
            full = sizes.width, sizes.height
            preview = _preview(raw)
            exif = read_raw_exif(data, preview)
            turn = _FLIPS.get(sizes.flip, 1)
            upright = full[::-1] if turn in SIDEWAYS else full
            if preview is not None and min(preview.size) >= MIN_PREVIEW_SIDE:
                own = orientation(exif_of(preview))
                # A preview that is upright although the sensor lay on its side says nothing of it.
                turned = turn in SIDEWAYS and (preview.height > preview.width) != (
                    full[1] > full[0]
                )
                exif[ORIENTATION] = own if own != 1 else 1 if turned else turn
                if min_side is not None:
                    preview.draft(None, (min_side, min_side))
                _check_size(preview.width, preview.height, max_pixels)
                return preview, upright, exif
            _check_size(sizes.raw_width, sizes.raw_height, max_pixels)
            pixels = raw.postprocess(half_size=True, use_camera_wb=True, output_bps=8, user_flip=0)
    except rawpy.LibRawFileUnsupportedError:
        raise NotRawError("is not a RAW file of a known camera") from None
    except rawpy.LibRawIOError:
        raise RawError("the RAW file is truncated") from None
    except rawpy.LibRawUnsufficientMemoryError as error:
        raise MemoryError from error
    except rawpy.LibRawError as error:
        raise RawError(f"cannot be read as a RAW file ({_reason(error)})") from error
    exif[ORIENTATION] = turn
    return Image.fromarray(pixels), upright, exif


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise RawError(f"{width} x {height} pixels are more than the limit of {max_pixels:,}")


def _preview(raw: Any) -> Any:
    """Return the largest picture that the file holds beside the sensor's values, or None."""
    import rawpy
    from PIL import Image

    try:
        found = raw.extract_thumb()
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
        return None
    except rawpy.LibRawError:  # a broken preview; the sensor's values may be sound
        return None
    if found.format == rawpy.ThumbFormat.JPEG:
        try:
            return Image.open(io.BytesIO(found.data), formats=("JPEG",))
        except OSError:
            return None
    if found.format == rawpy.ThumbFormat.BITMAP:
        return Image.fromarray(found.data)
    return None


def read_raw_exif(data: bytes, preview: Any) -> Exif:
    """Return the EXIF block of a file, or else that of its preview."""
    from PIL import Image

    exif = Image.Exif()
    if data.startswith(_TIFF_HEADS):
        exif = _parse(data)
    elif data[4:12] == _CANON:
        exif = _canon_exif(data)
    if not len(exif) and preview is not None:
        exif = exif_of(preview)
    return exif


def _parse(tiff: bytes) -> Exif:
    from PIL import Image

    exif = Image.Exif()
    order = tiff[:2]
    mark = b"*\0" if order == b"II" else b"\0*"  # what Olympus and Panasonic replace
    try:
        exif.load(order + mark + tiff[4:])
        exif.get(ORIENTATION)
    except Exception:  # the picture is usable without its EXIF block
        return Image.Exif()
    return exif


def _canon_exif(data: bytes) -> Exif:
    """Return the EXIF block of a CR3 file, whose directories are boxes of their own."""
    exif = _parse(_box_content(data, b"CMT1"))
    for name, tag in ((b"CMT2", 0x8769), (b"CMT4", 0x8825)):
        exif.get_ifd(tag).update(_parse(_box_content(data, name)))
    return exif


def _box_content(data: bytes, name: bytes) -> bytes:
    at = data.find(name, 0, 1 << 16)
    if at < 4:
        return b""
    [length] = struct.unpack_from(">I", data, at - 4)
    return data[at + 4 : at - 4 + length]


def _reason(error: Exception) -> str:
    """Return LibRaw's words, which rawpy gives as the text of bytes."""
    text = str(error)
    return text[2:-1] if text.startswith("b'") else text
