from __future__ import annotations

import hashlib
import os
from pathlib import Path

from PIL import Image

from helpers.colour_encoder import write_image
from polyglance.search.files import (
    content_hash,
    make_thumbnail,
    modified_date,
)
from polyglance.search.render.images import decode_thumbnail
from polyglance.search.store import FileSignature


def test_an_impossible_modification_time_gives_some_date() -> None:
    assert modified_date(FileSignature(0, 10**40)) == "1970-01-01T00:00:00"


def test_the_hash_is_of_the_content_alone(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    for name in "ab":
        (tmp_path / name).write_bytes(content)
    expected = hashlib.blake2b(content, digest_size=16).hexdigest()
    assert content_hash(str(tmp_path / "a")) == content_hash(str(tmp_path / "b")) == expected


def test_thumbnails_are_small_and_look_the_same(tmp_path: Path) -> None:
    # A side that an integer brings to 231 pixels or more is reduced, others are resized.
    for side, expected in ((1000, 250), (1100, 256), (512, 256), (300, 256), (200, 200)):
        picture = Image.open(write_image(tmp_path / "a.png", "red", (side, side // 2)))
        small = decode_thumbnail(make_thumbnail(picture))
        assert small.size == (expected, expected // 2)
        assert small.getpixel((9, 9))[0] > 240  # type: ignore[index]
        assert picture.size == (side, side // 2)
