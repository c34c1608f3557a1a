"""HEIC pictures as phones write them, whole and at a fraction of their size."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks import heif_files
from helpers.upload_files import photograph
from polyglance.vision import heif
from polyglance.vision.exif import Metadata
from polyglance.vision.pictures import (
    MISSING_PHOTOS_EXTRA,
    PictureError,
    decode_picture,
    read_picture,
)

WIDE = photograph(320, 240)


@cache
def made(size: tuple[int, int], **options: Any) -> bytes:
    return heif_files.heic(photograph(*size), **options)


def heic(picture: Image.Image, **options: Any) -> bytes:
    return made(picture.size, **options)


def difference(image: Image.Image, expected: Image.Image) -> float:
    assert image.size == expected.size
    return float(np.abs(np.asarray(image, int) - np.asarray(expected, int)).mean())


def exif_block() -> bytes:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Apple", "iPhone 15 Pro", 6
    exif.get_ifd(0x8769)[0x9003] = "2024:07:31 18:05:00"
    exif.get_ifd(0x8825).update({1: "S", 2: (33.0, 51.0, 24.84), 3: "E", 4: (151.0, 12.0, 54.72)})
    return exif.tobytes()


def test_a_picture_of_tiles_has_its_pixels_size_and_metadata() -> None:
    content = heic(photograph(200, 120), tile=64, exif=exif_block(), turns=3, preview=64)
    decoded = decode_picture(content, "IMG_1.HEIC")
    assert (decoded.width, decoded.height) == (120, 200)
    # The container turns the picture; the orientation in its EXIF block must not do it again.
    assert difference(decoded.image, photograph(200, 120).transpose(Image.Transpose.ROTATE_270)) < 3
    expected = Metadata("2024-07-31T18:05:00", "Apple iPhone 15 Pro", -33.8569, 151.2152)
    assert decoded.metadata == expected


@pytest.mark.parametrize(
    ("tile", "turns", "mirror"),
    [(None, 0, None), (None, 1, 1), (64, 0, 0), (64, 1, None), (64, 2, 1), (64, 3, 0)],
)
def test_a_reduced_picture_is_the_whole_one_made_smaller(
    tile: int | None, turns: int, mirror: int | None
) -> None:
    content = heic(WIDE, tile=tile, turns=turns, mirror=mirror)
    whole = decode_picture(content, "a.heic").image
    for min_side, factor in ((25, 8), (60, 4), (120, 2)):
        small = heif.decode_reduced(content, min_side=min_side, max_pixels=10**6)
        assert small is not None
        assert difference(small, whole.reduce(factor)) < 2
    assert heif.decode_reduced(content, min_side=200, max_pixels=10**6) is None


def test_a_reduced_picture_keeps_the_full_size_and_metadata() -> None:
    content = heic(WIDE, tile=64, exif=exif_block())
    decoded = decode_picture(content, "a.heic", min_side=50)
    assert decoded.image.size == (80, 60)
    assert (decoded.width, decoded.height) == WIDE.size
    assert decoded.metadata.camera == "Apple iPhone 15 Pro"


def test_sides_that_no_tile_divides() -> None:
    content = heic(photograph(333, 222), tile=64)
    whole = decode_picture(content, "a.heic").image
    small = heif.decode_reduced(content, min_side=50, max_pixels=10**6)
    assert small is not None
    assert difference(small, whole.reduce(4)) < 2


@pytest.mark.parametrize("pix_fmt", ["yuv420p10le", "yuv422p10le", "yuv444p"])
def test_other_depths_and_samplings_of_colours(pix_fmt: str) -> None:
    content = heic(WIDE, tile=64, pix_fmt=pix_fmt)
    whole = decode_picture(content, "a.heic").image
    assert difference(whole, WIDE) < 3
    small = heif.decode_reduced(content, min_side=50, max_pixels=10**6)
    assert small is not None
    assert difference(small, whole.reduce(4)) < 2


def box_of(content: bytes, name: bytes) -> int:
    return content.index(name) + 4


def changed(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


@pytest.mark.parametrize(("matrix", "flags"), [(6, 0), (1, 0), (1, 0x80)])
def test_colours_follow_the_container(matrix: int, flags: int) -> None:
    content = heic(WIDE, tile=64)
    at = box_of(content, b"nclx") + 4
    content = changed(content, at, struct.pack(">HB", matrix, flags))
    small = heif.decode_reduced(content, min_side=50, max_pixels=10**6)
    assert small is not None
    assert difference(small, decode_picture(content, "a.heic").image.reduce(4)) < 2.5


@pytest.mark.parametrize(
    ("name", "offset", "new"),
    [
        (b"hvc1", -4, b"av01"),  # compressed otherwise
        (b"colr", 0, b"nclx\0\1\0\1\0\0\0"),  # green, blue and red
        (b"irot", -4, b"clap"),
        (b"dimg", 2, b"\0\1"),  # one tile of many
        (b"iloc", 4, b"\xff"),  # places of fifteen bytes
        (b"ispe", 4, struct.pack(">I", 300)),  # another size than the grid's
    ],
)
def test_what_is_unusual_is_left_to_the_other_decoder(name: bytes, offset: int, new: bytes) -> None:
    content = heic(WIDE, tile=64, turns=1)
    content = changed(content, box_of(content, name) + offset, new)
    assert heif.decode_reduced(content, min_side=50, max_pixels=10**6) is None


def test_no_cut_of_a_file_is_an_exception() -> None:
    content = heic(photograph(96, 64), tile=32)
    start = content.index(b"mdat") + 4
    for end in (*range(0, start, 37), start + 50, len(content) - 20):
        assert heif.decode_reduced(content[:end], min_side=10, max_pixels=10**6) is None
        with suppress(PictureError):
            decode_picture(content[:end], "a.heic", min_side=10)


def test_a_header_that_claims_too_many_pixels_is_refused_undecoded() -> None:
    content = heic(WIDE, tile=64, claim=(20_000, 20_000))
    assert heif.decode_reduced(content, min_side=50, max_pixels=10**8) is None
    with pytest.raises(PictureError, match=r"more than the limit|too many pixels"):
        decode_picture(content, "a.heic", min_side=50)


def test_heic_by_another_name_and_jpeg_named_heic(tmp_path: Any) -> None:
    (tmp_path / "export.jpg").write_bytes(heic(WIDE, tile=None))
    assert read_picture(tmp_path / "export.jpg").size == WIDE.size
    WIDE.save(tmp_path / "a.heic", "JPEG")
    assert read_picture(tmp_path / "a.heic").size == WIDE.size


def test_avif_is_no_heic() -> None:
    out = io.BytesIO()
    WIDE.save(out, "AVIF")
    assert not heif.is_heif(out.getvalue()[:64])
    assert heif.is_heif(heic(WIDE, tile=None)[:64])


def test_without_the_extra_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(WIDE, tile=None)
    monkeypatch.setattr(heif, "can_read_heif", lambda: False)
    with pytest.raises(PictureError) as caught:
        decode_picture(content, "a.heic")
    assert str(caught.value) == f"a.heic: {MISSING_PHOTOS_EXTRA}"


def test_without_ffmpeg_the_other_decoder_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(WIDE, tile=64)
    monkeypatch.setattr(heif, "find_spec", lambda name: None)
    assert heif.decode_reduced(content, min_side=50, max_pixels=10**6) is None
    monkeypatch.setattr(heif, "can_read_heif", lambda: True)
    assert decode_picture(content, "a.heic", min_side=50).image.size == WIDE.size
