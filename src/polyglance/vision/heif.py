"""HEIC and HEIF pictures, which phones make, read by pi-heif (the extra ``photos``).

A decoder of HEVC has to decode all pixels, whatever the size that is wanted. Where a picture is
wanted small, FFmpeg decodes it, which the same extra brings: in less than half of the time. Each
tile is reduced before its colours are converted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from polyglance.vision.heif_items import HeifItems, read_items

if TYPE_CHECKING:
    from PIL.Image import Image

HEIF_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
FORMAT = "HEIF"
"""Pillow's name of the format."""

_BRANDS = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)
_AVIF_BRANDS = (b"avif", b"avis")
_MAX_FACTOR = 8
_COARSE_FACTOR = 4
"""Reduced by so much, a picture looks the same without the filters that hide block edges."""
_PLAIN_FORMATS = ("yuv420p", "yuvj420p")
_MATRICES = {1: (0.2126, 0.0722), 2: (0.299, 0.114), 5: (0.299, 0.114), 6: (0.299, 0.114)}
"""Weights of red and blue in the luma, by the code of a colour matrix (ITU-T H.273)."""


class _OtherKindError(ValueError):
    """A file with something that only pi-heif reads."""


def can_read_heif() -> bool:
    """Return whether pi-heif is installed."""
    return find_spec("pi_heif") is not None


def is_heif(head: bytes) -> bool:
    """Return whether a file that begins so is HEIC or HEIF, and not AVIF, which Pillow reads."""
    if head[4:8] != b"ftyp" or head[8:12] not in _BRANDS:
        return False
    end = min(int.from_bytes(head[:4], "big"), len(head))
    return not any(head[at : at + 4] in _AVIF_BRANDS for at in range(16, end, 4))


def register() -> None:
    """Let Pillow open the format; one thread, because files are decoded in parallel."""
    import pi_heif

    pi_heif.register_heif_opener(
        decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
    )


def decode_reduced(data: bytes, *, min_side: int, max_pixels: int) -> Image | None:
    """Decode a large picture at 1/2, 1/4 or 1/8 of its size by FFmpeg.

    Args:
        data: The content of a HEIC file.
        min_side: Least pixels of the shorter side.
        max_pixels: Larger pictures are not decoded.

    Returns:
        The upright picture in RGB; None if it is not that large, or is of a kind that is left to
        pi-heif: damaged, transparent, cropped, in other colours, or not compressed by HEVC.
    """
    if find_spec("av") is None:
        return None
    try:
        items = read_items(data)
        properties = dict(items.properties(items.primary))
        width, height = struct.unpack_from(">II", properties[b"ispe"], 4)
        factor = _MAX_FACTOR
        while factor > 1 and min(width, height) // factor < min_side:
            factor //= 2
        if factor == 1 or width * height > max_pixels or b"clap" in properties:
            return None
        picture = _decode(items, (width, height), factor, max_pixels)
        return _turn(picture, items.properties(items.primary))
    except (ValueError, LookupError, ArithmeticError, struct.error):
        return None


def _decode(items: HeifItems, size: tuple[int, int], factor: int, max_pixels: int) -> Image:
    from PIL import Image

    rows, columns, tiles = 1, 1, [items.primary]
    if items.kinds[items.primary] == b"grid":
        grid = items.content(items.primary)
        rows, columns = grid[2] + 1, grid[3] + 1
        tiles = list(items.references[b"dimg", items.primary])
        if len(tiles) != rows * columns or size != struct.unpack_from(
            ">II" if grid[1] & 1 else ">HH", grid, 4
        ):
            raise _OtherKindError
    if any(b"alpha" in content for item in items.kinds for _, content in items.properties(item)):
        raise _OtherKindError
    colours = dict(items.properties(items.primary)).get(b"colr") or dict(
        items.properties(tiles[0])
    ).get(b"colr", b"")
    planes = [Image.new("L", (-(-size[0] // factor), -(-size[1] // factor))) for _ in range(3)]
    code, is_full = 0, True
    for place, frame in enumerate(_frames(items, tiles, factor, max_pixels)):
        if frame.width * columns < size[0] or frame.height * rows < size[1]:
            raise _OtherKindError  # tiles that leave a part empty
        left, top = place % columns * frame.width, place // columns * frame.height
        if (frame.width % factor or frame.height % factor) and len(tiles) > 1:
            raise _OtherKindError
        code, is_full = _colours(colours, frame)
        for plane, small in zip(planes, _reduced(frame, factor), strict=True):
            plane.paste(small, (left // factor, top // factor))
    return _to_rgb(planes, _MATRICES[code], is_full)


def _frames(items: HeifItems, tiles: list[int], factor: int, max_pixels: int) -> Iterator[Any]:
    """Yield the decoded frame of each tile, in their order."""
    import av
    from av.error import FFmpegError

    configurations = {dict(items.properties(tile))[b"hvcC"] for tile in tiles}
    if len(configurations) != 1 or {items.kinds[tile] for tile in tiles} != {b"hvc1"}:
        raise _OtherKindError
    codec: Any = av.CodecContext.create("hevc", "r")
    codec.extradata, codec.thread_count = configurations.pop(), 1
    codec.options = {
        "max_pixels": str(max_pixels),
        "skip_loop_filter": "all" if factor >= _COARSE_FACTOR else "default",
    }
    count, size = 0, None
    try:
        for tile in [*tiles, None]:
            packet = None if tile is None else av.Packet(items.content(tile))
            for frame in codec.decode(packet):
                size = size or (frame.width, frame.height)
                if (frame.width, frame.height) != size or count == len(tiles):
                    raise _OtherKindError
                count += 1
                yield frame
    except FFmpegError as error:
        raise _OtherKindError from error
    if count != len(tiles):
        raise _OtherKindError


def _reduced(frame: Any, factor: int) -> Iterator[Image]:
    """Yield the planes of a frame, luma reduced by a factor and colours to the same size."""
    from PIL import Image

    if frame.format.name not in _PLAIN_FORMATS:  # more bits, or more colour
        frame = frame.reformat(format="yuv420p")
    luma: tuple[int, int] | None = None
    for number, plane in enumerate(frame.planes):
        size = plane.width, plane.height
        image = Image.frombuffer("L", size, plane, "raw", "L", plane.line_size, 1)
        small = image.reduce(factor if number == 0 else factor // 2) if factor > 1 else image
        luma = luma or small.size
        yield small if small.size == luma else small.resize(luma)


def _colours(box: bytes, frame: Any) -> tuple[int, bool]:
    """Return the code of the colour matrix, and whether all 256 values are used.

    The container's word counts; else the stream's; else those of JPEG.
    """
    if box[:4] == b"nclx":
        _, _, code, flags = struct.unpack_from(">HHHB", box, 4)
        return int(code), bool(flags & 0x80)
    code = int(frame.colorspace)
    is_full = frame.format.name == "yuvj420p" or int(frame.color_range) != 1
    return code if code in _MATRICES else 2, is_full


def _to_rgb(planes: list[Image], weights: tuple[float, float], is_full: bool) -> Image:
    from PIL import Image

    if is_full and weights == _MATRICES[5]:
        return Image.merge("YCbCr", planes).convert("RGB")
    import numpy as np

    luma, blue, red = (np.asarray(plane, np.float32) for plane in planes)
    scales = (1.0, 1.0) if is_full else (255 / 219, 255 / 224)
    luma = (luma - (0 if is_full else 16)) * scales[0]
    blue, red = (blue - 128) * scales[1], (red - 128) * scales[1]
    of_red, of_blue = weights
    reds, blues = luma + 2 * (1 - of_red) * red, luma + 2 * (1 - of_blue) * blue
    greens = (luma - of_red * reds - of_blue * blues) / (1 - of_red - of_blue)
    return Image.fromarray(np.stack([reds, greens, blues], -1).round().clip(0, 255).astype("uint8"))


def _turn(picture: Image, properties: list[tuple[bytes, bytes]]) -> Image:
    """Apply rotations and reflections, in their order."""
    from PIL.Image import Transpose

    turns = (None, Transpose.ROTATE_90, Transpose.ROTATE_180, Transpose.ROTATE_270)
    flips = (Transpose.FLIP_TOP_BOTTOM, Transpose.FLIP_LEFT_RIGHT)
    for name, content in properties:
        step = None
        if name == b"irot":
            step = turns[content[0] & 3]
        elif name == b"imir":
            step = flips[content[0] & 1]
        picture = picture if step is None else picture.transpose(step)
    return picture
