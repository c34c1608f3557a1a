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

TILE = 512
"""Pixels per side of an iPhone's tiles."""
_VPS, _SPS, _PPS = 32, 33, 34
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
    tile: int = TILE,
    crf: int = 24,
    exif: bytes = b"",
    turns: int = 0,
    preview: int = 0,
    claim: tuple[int, int] | None = None,
) -> bytes:
    """Return a HEIC file.

    Args:
        picture: RGB.
        tile: Pixels per side of a tile; a multiple of 16.
        crf: How coarsely x265 compresses.
        exif: EXIF block, as Pillow's ``Exif.tobytes`` returns it.
        turns: Counter-clockwise quarter turns for whoever shows it.
        preview: Longer side of an embedded preview; 0 for none.
        claim: Size that the header gives instead of the real one.

    Returns:
        The content of the file.
    """
    columns, rows = -(-picture.width // tile), -(-picture.height // tile)
    padded = np.pad(
        np.asarray(picture.convert("RGB")),
        ((0, rows * tile - picture.height), (0, columns * tile - picture.width), (0, 0)),
        "edge",
    )
    tiles = [
        padded[y * tile : (y + 1) * tile, x * tile : (x + 1) * tile]
        for y in range(rows)
        for x in range(columns)
    ]
    properties: list[bytes] = []

    def add_property(box: bytes) -> int:
        properties.append(box)
        return len(properties)

    size = claim or picture.size
    whole = [add_property(_ispe(*size))]
    if turns:
        whole.append(0x80 | add_property(_box(b"irot", bytes([turns % 4]))))
    colours = add_property(_box(b"colr", b"nclx" + struct.pack(">HHHB", 1, 13, 6, 0x80)))
    configuration, samples = _compress(tiles, crf)
    shared = [add_property(_ispe(tile, tile)), 0x80 | add_property(configuration), colours]
    grid = struct.pack(">BBBBII", 0, 1, rows - 1, columns - 1, *size)
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


def _even(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat the last row and column to a multiple of eight, which the encoder needs."""
    height, width = pixels.shape[:2]
    return np.pad(pixels, ((0, -height % 8), (0, -width % 8), (0, 0)), "edge")


def _compress(pictures: Sequence[NDArray[np.uint8]], crf: int) -> tuple[bytes, list[bytes]]:
    """Return the decoder configuration of pictures of one size, and each as one sample."""
    import av

    height, width = pictures[0].shape[:2]
    codec = av.CodecContext.create("libx265", "w")
    codec.width, codec.height, codec.pix_fmt = width, height, "yuv420p"  # type: ignore[attr-defined]
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
        frame = frame.reformat(format="yuv420p", dst_colorspace="ITU601", dst_color_range="JPEG")
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
    return _configuration(parameters), samples


def _units(stream: bytes) -> list[bytes]:
    """Split a byte stream at its start codes."""
    return [unit.rstrip(b"\0") for unit in stream.split(b"\0\0\1")[1:]]


def _configuration(parameters: dict[int, bytes]) -> bytes:
    """Return the ``hvcC`` box (ISO/IEC 14496-15, 8.3.3.1)."""
    profile = parameters[_SPS].replace(b"\0\0\3", b"\0\0")[3:15]
    content = b"\1" + profile + bytes.fromhex("f000fcfdf8f800000f") + bytes([len(parameters)])
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

    def meta(start: int) -> bytes:
        locations = b""
        for number, item in enumerate(items, 1):
            locations += struct.pack(">HHHII", number, 0, 1, start, len(item.content))
            start += len(item.content)
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
    return ftyp + meta(start) + _box(b"mdat", *(item.content for item in items))


def _box(kind: bytes, *content: bytes) -> bytes:
    return struct.pack(">I", 8 + sum(map(len, content))) + kind + b"".join(content)


def _ispe(width: int, height: int) -> bytes:
    return _box(b"ispe", bytes(4), struct.pack(">II", width, height))


def _reference(kind: bytes, source: int, targets: Sequence[int]) -> bytes:
    numbers = struct.pack(f">HH{len(targets)}H", source, len(targets), *targets)
    return _box(kind, numbers)
