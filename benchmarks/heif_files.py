"""Write HEIC files as phones do: HEVC tiles in a grid, EXIF, a small preview, a rotation.

The decoder that we read them with, pi-heif, has no encoder, and one that has is under the GPL. So
PyAV compresses the tiles, and the container (ISO/IEC 23008-12) is written here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
TILE = 512
"""Pixels per side of an iPhone's tiles."""
_VPS, _SPS, _PPS = 32, 33, 34
_SAMPLINGS = {"yuv420p": 1, "yuv422p": 2, "yuv444p": 3}
_PICTURE, _GRID, _EXIF = b"hvc1", b"grid", b"Exif"


@dataclass
class _Item:
    kind: bytes
    content: bytes
    properties: list[int] = field(default_factory=list)
    hidden: bool = False
    """Whether it is only a part of another one."""


def heic(
    picture: Image.Image,
    *,
    tile: int | None = TILE,
    crf: int = 24,
    pix_fmt: str = "yuv420p",
    exif: bytes = b"",
    turns: int = 0,
    mirror: int | None = None,
    preview: int = 0,
    claim: tuple[int, int] | None = None,
) -> bytes:
    """Return a HEIC file.

    Args:
        picture: RGB.
        tile: Pixels per side of a tile, a multiple of 16; None for a picture without tiles, whose
            sides are multiples of 8.
        crf: How coarsely x265 compresses.
        pix_fmt: FFmpeg's name of how colours are sampled, with 8 or 10 bits.
        exif: EXIF block, as Pillow's ``Exif.tobytes`` returns it.
        turns: Counter-clockwise quarter turns for whoever shows it.
        mirror: Then swap top and bottom (0) or left and right (1).
        preview: Longer side of an embedded preview; 0 for none.
        claim: Size that the header gives instead of the real one.

    Returns:
        The content of the file.
    """
    whole_pixels = np.asarray(picture.convert("RGB"))
    rows, columns, tiles = _tiles(whole_pixels, tile) if tile else (1, 1, [whole_pixels])
    properties: list[bytes] = []

    def add_property(box: bytes) -> int:
        properties.append(box)
        return len(properties)

    size = claim or picture.size
    whole = [add_property(_ispe(*size))]
    if turns:
        whole.append(0x80 | add_property(_box(b"irot", bytes([turns % 4]))))
    if mirror is not None:
        whole.append(0x80 | add_property(_box(b"imir", bytes([mirror]))))
    colours = add_property(_box(b"colr", b"nclx" + struct.pack(">HHHB", 1, 13, 6, 0x80)))
    configuration, samples = _compress(tiles, crf, pix_fmt)
    configured = 0x80 | add_property(configuration)
    references = b""
    if tile is None:
        items = [_Item(_PICTURE, samples[0], [*whole, configured, colours])]
    else:
        grid = struct.pack(">BBBBII", 0, 1, rows - 1, columns - 1, *size)
        shared = [add_property(_ispe(tile, tile)), configured, colours]
        items = [_Item(_GRID, grid, [*whole, colours])]
        items += [_Item(_PICTURE, sample, shared, hidden=True) for sample in samples]
        references = _reference(b"dimg", 1, range(2, len(items) + 1))
    if preview:
        small = picture.convert("RGB").copy()
        small.thumbnail((preview, preview))
        configuration, [sample] = _compress([_even(np.asarray(small))], crf)
        small_ones = [add_property(_ispe(*small.size)), 0x80 | add_property(configuration)]
        items.append(_Item(_PICTURE, sample, [*small_ones, *whole[1:], colours]))
        references += _reference(b"thmb", len(items), [1])
    if exif:
        items.append(_Item(_EXIF, struct.pack(">I", 6) + exif))
        references += _reference(b"cdsc", len(items), [1])
    return _container(items, properties, references)


def _tiles(pixels: Pixels, side: int) -> tuple[int, int, list[Pixels]]:
    """Return the numbers of rows and columns, and tiles; the last ones repeat the edge."""
    height, width = pixels.shape[:2]
    rows, columns = -(-height // side), -(-width // side)
    margins = ((0, rows * side - height), (0, columns * side - width), (0, 0))
    padded = np.pad(pixels, margins, "edge")
    places = ((y * side, x * side) for y in range(rows) for x in range(columns))
    return rows, columns, [padded[y : y + side, x : x + side] for y, x in places]


def _even(pixels: Pixels) -> Pixels:
    """Repeat the last row and column to a multiple of eight, which the encoder needs."""
    height, width = pixels.shape[:2]
    return np.pad(pixels, ((0, -height % 8), (0, -width % 8), (0, 0)), "edge")


def _compress(
    pictures: Sequence[Pixels], crf: int, pix_fmt: str = "yuv420p"
) -> tuple[bytes, list[bytes]]:
    """Return the decoder configuration of pictures of one size, and each as one sample."""
    import av

    height, width = pictures[0].shape[:2]
    codec = av.CodecContext.create("libx265", "w")
    codec.width, codec.height, codec.pix_fmt = width, height, pix_fmt  # type: ignore[attr-defined]
    codec.time_base = Fraction(1, 25)
    codec.thread_count = 1
    codec.options = {
        "crf": str(crf),
        "preset": "superfast",
        "x265-params": "keyint=1:info=0:log-level=none:pools=none:range=full",
    }
    packets = []
    for number, pixels in enumerate(pictures):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
        frame = frame.reformat(format=pix_fmt, dst_colorspace="ITU601", dst_color_range="JPEG")
        frame.pts = number
        packets += codec.encode(frame)  # type: ignore[attr-defined]
    packets += codec.encode(None)  # type: ignore[attr-defined]
    parameters: dict[int, bytes] = {}
    samples = []
    for packet in sorted(packets, key=lambda packet: packet.pts):
        sample = b""
        for unit in _units(bytes(packet)):
            kind = unit[0] >> 1 & 63
            if kind in (_VPS, _SPS, _PPS):
                parameters[kind] = unit
            elif kind < _VPS:
                sample += struct.pack(">I", len(unit)) + unit
        samples.append(sample)
    return _configuration(parameters, pix_fmt), samples


def _units(stream: bytes) -> list[bytes]:
    """Split a byte stream at its start codes."""
    return [unit.rstrip(b"\0") for unit in stream.split(b"\0\0\1")[1:]]


def _configuration(parameters: dict[int, bytes], pix_fmt: str) -> bytes:
    """Return the ``hvcC`` box (ISO/IEC 14496-15, 8.3.3.1)."""
    profile = parameters[_SPS].replace(b"\0\0\3", b"\0\0")[3:15]
    colours, depth = _SAMPLINGS[pix_fmt[:7]], 0xF8 | (2 if "10" in pix_fmt else 0)
    content = b"\1" + profile + bytes([0xF0, 0, 0xFC, 0xFC | colours, depth, depth, 0, 0, 0x0F])
    content += bytes([len(parameters)])
    for kind in (_VPS, _SPS, _PPS):
        unit = parameters[kind]
        content += struct.pack(">BHH", 0x80 | kind, 1, len(unit)) + unit
    return _box(b"hvcC", content)


def _container(items: list[_Item], properties: list[bytes], references: bytes) -> bytes:
    entries = b"".join(
        _box(b"infe", struct.pack(">IHH4sx", 0x02000000 | item.hidden, number, 0, item.kind))
        for number, item in enumerate(items, 1)
    )
    associations = b"".join(
        struct.pack(">HB", number, len(item.properties)) + bytes(item.properties)
        for number, item in enumerate(items, 1)
    )
    count = struct.pack(">I", len(items))
    properties_box = _box(
        b"iprp", _box(b"ipco", b"".join(properties)), _box(b"ipma", bytes(4), count, associations)
    )
    ftyp = _box(b"ftyp", b"heic", bytes(4), b"mif1heic")

    places: dict[bytes, int] = {}  # equal contents are written once
    for item in items:
        places.setdefault(item.content, sum(map(len, places)))

    def meta(start: int) -> bytes:
        locations = b""
        for number, item in enumerate(items, 1):
            place = start + places[item.content]
            locations += struct.pack(">HHHII", number, 0, 1, place, len(item.content))
        return _box(
            b"meta",
            bytes(4),
            _box(b"hdlr", bytes(8), b"pict", bytes(13)),
            _box(b"pitm", bytes(4), struct.pack(">H", 1)),
            _box(b"iinf", bytes(4), struct.pack(">H", len(items)), entries),
            _box(b"iref", bytes(4), references),
            properties_box,
            _box(b"iloc", bytes(4), b"\x44\0", struct.pack(">H", len(items)), locations),
        )

    start = len(ftyp) + len(meta(0)) + 8
    return ftyp + meta(start) + _box(b"mdat", *places)


def _box(kind: bytes, *content: bytes) -> bytes:
    return struct.pack(">I", 8 + sum(map(len, content))) + kind + b"".join(content)


def _ispe(width: int, height: int) -> bytes:
    return _box(b"ispe", bytes(4), struct.pack(">II", width, height))


def _reference(kind: bytes, source: int, targets: Sequence[int]) -> bytes:
    numbers = struct.pack(f">HH{len(targets)}H", source, len(targets), *targets)
    return _box(kind, numbers)
