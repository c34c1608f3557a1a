"""Unusual pictures, each written to a real file."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from polyglance.errors import PolyglanceError
from polyglance.vision.pictures import (
    PictureError,
    decode_picture,
    downscale,
    read_picture,
    read_square,
    to_square,
    upright_rgb,
)

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def corners(width: int = 60, height: int = 40) -> Image.Image:
    """Red, green / blue, white: all its rotations and reflections differ."""
    picture = Image.new("RGB", (width, height))
    for x, y, colour in ((0, 0, RED), (1, 0, GREEN), (0, 1, BLUE), (1, 1, WHITE)):
        box = (x * width // 2, y * height // 2, (x + 1) * width // 2, (y + 1) * height // 2)
        picture.paste(colour, box)
    return picture


def look(picture: Image.Image) -> list[tuple[int, ...]]:
    """The colours in the middle of the four quarters, rounded to 0 or 255."""
    width, height = picture.size
    points = [(x * width // 4, y * height // 4) for y in (1, 3) for x in (1, 3)]
    return [tuple(255 * round(value / 255) for value in picture.getpixel(p)) for p in points]


UPRIGHT = [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_every_exif_orientation_is_turned_upright(tmp_path, orientation, suffix):
    # As the camera stores it: the upright scene, inversely rotated.
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    scene = corners()
    stored = scene.transpose(undo[orientation]) if orientation in undo else scene
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"picture.{suffix}"
    stored.save(path, exif=exif, quality=95)
    picture = read_picture(path)
    assert picture.size == scene.size
    assert look(picture) == UPRIGHT
    assert look(upright_rgb(picture)) == UPRIGHT  # not turned once more


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_mangled_exif_block_is_ignored(tmp_path):
    path = tmp_path / "picture.jpg"
    corners().save(path, exif=b"Exif\0\0MM\0*\xff\xff\xff\xff garbage", quality=95)
    assert look(read_picture(path)) == UPRIGHT


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "YCbCr", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    path = tmp_path / "picture.tiff"
    Image.new("RGB", (8, 8), WHITE).convert(mode).save(path)
    picture = read_picture(path)
    assert picture.mode == "RGB"
    assert picture.getpixel((4, 4)) == WHITE


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_an_opened_picture_equals_its_file(tmp_path, mode):
    path = tmp_path / "picture.png"
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(corners().convert("L")).astype(np.uint16) * 257)
    else:
        picture = corners().convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(path, exif=exif)
    with Image.open(path) as opened:
        assert opened.mode == mode
        converted = upright_rgb(opened)
    assert (converted.mode, converted.size) == ("RGB", (40, 60))
    assert np.array_equal(np.asarray(converted), np.asarray(read_picture(path)))


def test_cmyk_jpeg_keeps_its_colours(tmp_path):
    path = tmp_path / "picture.jpg"
    corners().convert("CMYK").save(path, quality=95)
    assert Image.open(path).mode == "CMYK"
    assert look(read_picture(path)) == UPRIGHT


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_transparent_parts_become_white(tmp_path, mode):
    # Black on the left, and the same black, but transparent, on the right.
    path = tmp_path / "picture.png"
    if mode in ("RGBA", "LA"):
        picture = Image.new("RGBA", (20, 10), (0, 0, 0, 255))
        picture.paste((0, 0, 0, 0), (10, 0, 20, 10))
        picture.convert(mode).save(path)
    elif mode == "P":
        picture = Image.new("P", (20, 10), 0)
        picture.putpalette([0, 0, 0, 0, 0, 0])
        picture.paste(1, (10, 0, 20, 10))
        picture.save(path, transparency=1)
    else:  # one colour of a picture without alpha is declared transparent
        picture = Image.new("RGB", (20, 10), 0)
        picture.paste((1, 2, 3), (10, 0, 20, 10))
        picture.save(path, transparency=(1, 2, 3))
    opened = read_picture(path)
    assert opened.getpixel((2, 5)) == (0, 0, 0)
    assert opened.getpixel((17, 5)) == WHITE


def test_half_transparent_parts_are_blended_with_white(tmp_path):
    path = tmp_path / "picture.webp"
    Image.new("RGBA", (8, 8), (0, 0, 0, 128)).save(path, lossless=True, exact=True)
    assert read_picture(path).getpixel((4, 4)) == (127, 127, 127)


def test_sixteen_bits_are_scaled_to_eight(tmp_path):
    path = tmp_path / "picture.png"
    values = np.array([[0, 257, 32896, 65535]], np.uint16)
    Image.fromarray(values).save(path)
    assert np.asarray(read_picture(path))[0, :, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_values_without_a_known_range_are_scaled_to_the_full_range(tmp_path, dtype):
    path = tmp_path / "picture.tiff"
    Image.fromarray(np.array([[-10, 0, 10]], dtype)).save(path)
    assert np.asarray(read_picture(path))[0, :, 1].tolist() == [0, 128, 255]


def test_a_constant_deep_picture_is_black(tmp_path):
    path = tmp_path / "picture.tiff"
    Image.fromarray(np.full((3, 3), np.nan, np.float32)).save(path)
    assert read_picture(path).getpixel((1, 1)) == (0, 0, 0)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tiff"])
def test_the_first_frame_of_an_animation_is_read(tmp_path, suffix):
    path = tmp_path / f"picture.{suffix}"
    later = [Image.new("RGB", (60, 40), BLUE), Image.new("RGB", (60, 40), GREEN)]
    corners().save(path, save_all=True, append_images=later, lossless=True)
    assert look(read_picture(path)) == UPRIGHT


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(0).integers(60, 250, (height, width, 3))
    return Image.fromarray(values.astype(np.uint8))


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp"])
def test_a_truncated_file_is_read_if_most_rows_are_there(tmp_path, suffix):
    path = tmp_path / f"picture.{suffix}"
    noise(160, 160).save(path)
    complete = np.asarray(read_picture(path))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.9)])
    part = np.asarray(read_picture(path))
    assert part.shape == complete.shape
    if suffix == "bmp":  # stored from the bottom up
        part, complete = part[::-1], complete[::-1]
    assert np.array_equal(part[:120], complete[:120])
    assert (part[-4:] == 127).all()
    path.write_bytes(data[: int(len(data) * 0.4)])
    with pytest.raises(PictureError, match="truncated"):
        read_picture(path)


def test_a_truncated_progressive_jpeg_is_refused(tmp_path):
    path = tmp_path / "picture.jpg"
    noise(160, 160).save(path, progressive=True)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.9)])
    with pytest.raises(PictureError, match="truncated, only 0%"):
        read_picture(path)


def png_header(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b""))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("empty.jpg", b"", "empty"),
        ("text.png", b"no picture at all", "not a picture"),
        ("script.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
        ("half.webp", b"RIFF\x10\0\0\0WEBPVP8 ", "not a picture|cannot be read"),
        ("bomb.png", png_header(100_000, 100_000), "too many pixels"),
        ("large.png", png_header(11_000, 11_000), "limit"),
        ("header.png", png_header(10, 10), "truncated|cannot be read"),
        ("zero.png", png_header(0, 10), "cannot be read|not a picture"),
    ],
)
def test_other_files_raise_a_picture_error(tmp_path, name, data, why):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(PictureError, match=why) as caught:
        read_picture(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(PictureError, match="No such file"):
        read_picture(tmp_path / "nothing.jpg")
    with pytest.raises(PictureError, match="cannot be read"):
        read_picture(tmp_path)


def test_max_pixels_can_be_set(tmp_path):
    path = tmp_path / "picture.png"
    corners().save(path)
    with pytest.raises(PictureError, match="60 x 40"):
        read_picture(path, max_pixels=2399)
    assert read_picture(path, max_pixels=2400).size == (60, 40)


def test_a_large_jpeg_is_decoded_at_reduced_size(tmp_path):
    path = tmp_path / "picture.jpg"
    corners(1600, 1200).save(path, quality=95)
    assert read_picture(path).size == (1600, 1200)
    assert read_picture(path, min_side=128).size == (200, 150)
    quick = read_square(path, 64).pixels.astype(int)
    slow = to_square(read_picture(path), 64).pixels.astype(int)
    assert np.abs(quick - slow).mean() < 1


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (3, 2)])
@pytest.mark.parametrize("resize", ["squash", "centre"])
def test_every_shape_becomes_a_square(tmp_path, size, resize):
    path = tmp_path / "picture.png"
    Image.new("RGB", size, (10, 20, 30)).save(path)
    square = read_square(path, 32, resize)
    assert square.pixels.shape == (32, 32, 3)
    assert (square.pixels == [10, 20, 30]).all()


def test_squash_keeps_everything_and_centre_crops():
    wide = Image.new("RGB", (300, 100), RED)
    wide.paste(GREEN, (100, 0, 200, 100))
    squashed, cropped = to_square(wide, 90), to_square(wide, 90, "centre")
    assert squashed.frame == (0, 0, 1, 1)
    assert squashed.pixels[45, [10, 45, 80]].tolist() == [list(RED), list(GREEN), list(RED)]
    assert cropped.frame == pytest.approx((1 / 3, 0, 2 / 3, 1))
    assert (cropped.pixels == GREEN).all()


def test_an_unknown_resize_is_refused():
    with pytest.raises(PolyglanceError, match="squash"):
        to_square(corners(), 8, "stretch")


SAMPLES: dict[str, bytes] = {}


def sample(kind: str) -> bytes:
    if kind not in SAMPLES:
        from io import BytesIO

        out = BytesIO()
        noise(24, 24).save(out, kind)
        SAMPLES[kind] = out.getvalue()
    return SAMPLES[kind]


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["jpeg", "png", "gif", "webp", "bmp", "tiff", "ppm"]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.floats(0, 1),
)
def test_a_mangled_file_gives_a_picture_or_a_picture_error(tmp_path_factory, kind, changes, cut):
    data = bytearray(sample(kind))
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = Path(tmp_path_factory.getbasetemp()) / "mangled"
    path.write_bytes(data[: int(cut * len(data)) + 1])
    try:
        outcome: object = read_square(path, 16).pixels.shape
    except PictureError as error:
        outcome = str(error)[: len(str(path))]
    assert outcome in ((16, 16, 3), str(path))


def exif(**tags: object) -> Image.Exif:
    block = Image.Exif()
    codes = {"written": 0x0132, "orientation": 0x0112}
    for name, value in tags.items():
        if name == "taken":
            block.get_ifd(0x8769)[0x9003] = value
        else:
            block[codes[name]] = value
    return block


@pytest.mark.parametrize("suffix", ["jpg", "webp", "png"])
def test_the_date_is_when_the_picture_was_taken(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    block = exif(taken="2019:07:31 18:05:09", written="2024:01:01 00:00:00")
    Image.new("RGB", (40, 20)).save(path, exif=block)
    decoded = decode_picture(path.read_bytes(), path)
    assert (decoded.width, decoded.height, decoded.metadata.taken) == (
        40,
        20,
        "2019-07-31T18:05:09",
    )


def test_an_impossible_date_is_none(tmp_path: Path) -> None:
    for tags, expected in (
        ({"written": "2024:02:29 01:02:03"}, "2024-02-29T01:02:03"),
        ({"taken": "0000:00:00 00:00:00"}, None),
        ({"taken": "yesterday"}, None),
        ({}, None),
    ):
        Image.new("RGB", (4, 2)).save(tmp_path / "a.jpg", exif=exif(**tags))
        assert decode_picture((tmp_path / "a.jpg").read_bytes(), "a.jpg").metadata.taken == expected


@pytest.mark.parametrize("suffix", ["jpg", "png", "tiff"])
def test_the_size_is_that_of_the_whole_upright_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (400, 200)).save(path, exif=exif(orientation=6))
    decoded = decode_picture(path.read_bytes(), path, min_side=50)
    assert (decoded.width, decoded.height) == (200, 400)
    assert decoded.image.width < decoded.image.height


def test_large_images_are_downscaled_by_integer_factors() -> None:
    assert downscale(Image.new("RGB", (4000, 3000)), 672).size == (1000, 750)
    assert downscale(Image.new("RGB", (1343, 5000)), 672).size == (1343, 5000)
