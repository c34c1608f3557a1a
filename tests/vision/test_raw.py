"""RAW files: previews, development, orientation and metadata."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.dng_files import dng
from helpers.upload_files import photograph
from polyglance.vision import raw
from polyglance.vision.exif import Metadata, read_metadata
from polyglance.vision.pictures import (
    MISSING_PHOTOS_EXTRA,
    PictureError,
    decode_picture,
    read_picture,
)

SENSOR = photograph(480, 400)
TURNS = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_270, 8: Image.Transpose.ROTATE_90}


def turned(picture: Image.Image, orientation: int) -> Image.Image:
    return picture.transpose(TURNS[orientation]) if orientation in TURNS else picture


def likeness(image: Image.Image, expected: Image.Image) -> float:
    """Correlation of two pictures; development makes one brighter."""
    values = [np.asarray(picture, float).ravel() for picture in (image, expected)]
    return float(np.corrcoef(*values)[0, 1])


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("preview", [0, 120, 450])
def test_a_picture_is_upright_whether_it_is_a_preview_or_developed(
    preview: int, orientation: int
) -> None:
    decoded = decode_picture(dng(SENSOR, preview=preview, orientation=orientation), "a.dng")
    expected = turned(SENSOR, orientation)
    assert (decoded.width, decoded.height) == expected.size
    # Developed at half the size; a preview of 120 pixels is too small to be used.
    size = turned(Image.new("L", (450, 375) if preview == 450 else (240, 200)), orientation).size
    assert decoded.image.size == size
    assert likeness(decoded.image, expected.resize(size)) > 0.95


def test_date_camera_and_place() -> None:
    for preview in (0, 450):
        content = dng(
            SENSOR,
            preview=preview,
            make="Canon",
            model="Canon EOS R5",
            taken="2024:07:31 18:05:00",
            place=(-33.8569, 151.2152),
        )
        decoded = decode_picture(content, "a.dng", min_side=100)
        expected = Metadata("2024-07-31T18:05:00", "Canon EOS R5", -33.8569, 151.2152)
        assert decoded.metadata == expected


def test_a_preview_is_decoded_at_a_fraction() -> None:
    decoded = decode_picture(dng(SENSOR, preview=450), "a.dng", min_side=90)
    assert decoded.image.size == (113, 94)
    assert (decoded.width, decoded.height) == SENSOR.size


def directory(**tags: str) -> bytes:
    exif = Image.Exif()
    for name, value in tags.items():
        exif[int(name.removeprefix("tag"))] = value
    return exif.tobytes().removeprefix(b"Exif\0\0")


def test_metadata_of_other_containers() -> None:
    # Olympus and Panasonic write another mark where TIFF has 42.
    for mark in (b"IIRO", b"IIU\0"):
        tiff = dng(SENSOR, make="OLYMPUS", model="E-M1")
        metadata = read_metadata(raw.read_raw_exif(mark + tiff[4:], None))
        assert metadata.camera == "OLYMPUS E-M1"
    boxes = b"\0\0\0\x18ftypcrx \0\0\0\1crx isom"
    for name, tiff in (
        (b"CMT1", directory(tag271="Canon", tag272="Canon EOS R6")),
        (b"CMT2", directory(tag36867="2023:01:02 03:04:05")),
        (b"CMT4", b""),
    ):
        boxes += struct.pack(">I", 8 + len(tiff)) + name + tiff
    metadata = read_metadata(raw.read_raw_exif(boxes, None))
    assert (metadata.camera, metadata.taken) == ("Canon EOS R6", "2023-01-02T03:04:05")
    exif = Image.Exif()
    exif[271], exif[272] = "FUJIFILM", "X-T5"
    out = io.BytesIO()
    SENSOR.save(out, "JPEG", exif=exif)
    fuji = b"FUJIFILMCCD-RAW 0201"
    assert read_metadata(raw.read_raw_exif(fuji, Image.open(out))).camera == "FUJIFILM X-T5"


@pytest.mark.parametrize(
    "content",
    [b"II*\0" + bytes(60), b"FUJIFILMCCD-RAW " + bytes(200), dng(SENSOR)[:2000], b"MM\0*\xff\xff"],
)
def test_what_cannot_be_read_is_one_sentence(content: bytes) -> None:
    with pytest.raises(PictureError) as caught:
        decode_picture(content, "a.nef")
    assert str(caught.value) in (
        "a.nef: is not a RAW file of a known camera",
        "a.nef: the RAW file is truncated",
    )


def test_a_sensor_of_too_many_pixels_is_refused() -> None:
    with pytest.raises(PictureError, match="30000 x 30000 pixels are more than the limit"):
        decode_picture(dng(SENSOR, claim=(30_000, 30_000)), "a.dng")


def test_a_tiff_stays_a_tiff_and_a_jpeg_a_jpeg(tmp_path: Path) -> None:
    SENSOR.save(tmp_path / "a.tif")
    assert read_picture(tmp_path / "a.tif").size == SENSOR.size
    SENSOR.save(tmp_path / "a.cr2", "JPEG")
    assert read_picture(tmp_path / "a.cr2").size == SENSOR.size


def test_without_the_extra_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "can_read_raw", lambda: False)
    with pytest.raises(PictureError) as caught:
        decode_picture(dng(SENSOR), "a.dng")
    assert str(caught.value) == f"a.dng: {MISSING_PHOTOS_EXTRA}"
