from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from PIL import Image

from helpers.colour_encoder import write_image
from polyglance.search.files import (
    content_hash,
    downscale,
    make_thumbnail,
    modified_date,
    size_and_date,
)
from polyglance.search.render.images import decode_thumbnail
from polyglance.search.store import FileSignature

NOON = FileSignature(1, int(time.mktime((2020, 1, 2, 12, 0, 0, 0, 0, -1))) * 10**9)


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
    exif_block = exif(taken="2019:07:31 18:05:09", written="2024:01:01 00:00:00")
    picture = Image.new("RGB", (40, 20))
    picture.save(path, exif=exif_block)
    assert size_and_date(str(path), picture, NOON) == (40, 20, "2019-07-31T18:05:09")


def test_without_exif_the_date_is_the_modification_time(tmp_path: Path) -> None:
    picture = Image.new("RGB", (4, 2))
    for tags, expected in (
        ({"written": "2024:02:29 01:02:03"}, "2024-02-29T01:02:03"),
        ({"taken": "0000:00:00 00:00:00"}, "2020-01-02T12:00:00"),
        ({"taken": "yesterday"}, "2020-01-02T12:00:00"),
        ({}, "2020-01-02T12:00:00"),
    ):
        picture.save(tmp_path / "a.jpg", exif=exif(**tags))
        assert size_and_date(str(tmp_path / "a.jpg"), picture, NOON)[2] == expected


def test_the_size_is_that_of_the_upright_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("RGB", (400, 200)).save(path, exif=exif(orientation=6))
    decoded_small = Image.new("RGB", (100, 200))
    assert size_and_date(str(path), decoded_small, NOON)[:2] == (200, 400)
    assert size_and_date(str(tmp_path / "gone.jpg"), decoded_small, NOON)[:2] == (100, 200)


def test_an_impossible_modification_time_gives_some_date() -> None:
    assert modified_date(FileSignature(0, 10**40)) == "1970-01-01T00:00:00"


def test_the_hash_is_of_the_content_alone(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    for name in "ab":
        (tmp_path / name).write_bytes(content)
    expected = hashlib.blake2b(content, digest_size=16).hexdigest()
    assert content_hash(str(tmp_path / "a")) == content_hash(str(tmp_path / "b")) == expected


def test_thumbnails_are_small_and_look_the_same(tmp_path: Path) -> None:
    picture = Image.open(write_image(tmp_path / "a.png", "red", (1000, 500)))
    small = decode_thumbnail(make_thumbnail(picture))
    assert small.size == (256, 128)
    assert small.getpixel((9, 9))[0] > 240  # type: ignore[index]
    assert picture.size == (1000, 500)


def test_large_images_are_downscaled_by_integer_factors() -> None:
    assert downscale(Image.new("RGB", (4000, 3000)), 672).size == (1000, 750)
    assert downscale(Image.new("RGB", (1343, 5000)), 672).size == (1343, 5000)
