"""Cameras, places and dates that files give, sound and odd."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from PIL import Image

from polyglance.vision.exif import (
    Metadata,
    camera_name,
    clip_metadata,
    orientation,
    read_metadata,
)


@pytest.mark.parametrize(
    ("make", "model", "name"),
    [
        ("Apple", "iPhone 15 Pro", "Apple iPhone 15 Pro"),
        ("Canon", "Canon EOS R5", "Canon EOS R5"),
        ("NIKON CORPORATION", "NIKON D850", "NIKON D850"),
        ("samsung\0\0", " SM-S918B ", "samsung SM-S918B"),
        ("", "Pixel 8", "Pixel 8"),
        ("Leica", None, "Leica"),
        (None, "\0", None),
        (7, b"x", "7 b'x'"),
        ("a\x1b[31m", "b\n" * 200, "a [31m " + ("b " * 50).strip()),
    ],
)
def test_camera_name(make: Any, model: Any, name: str | None) -> None:
    assert camera_name(make, model) == name


def gps(*values: Any) -> Image.Exif:
    exif = Image.Exif()
    exif.get_ifd(0x8825).update(dict(enumerate(values, 1)))
    return exif


@pytest.mark.parametrize(
    ("values", "place"),
    [
        (("N", (48.0, 8.0, 13.2), "E", (11.0, 34.0, 31.08)), (48.137, 11.5753)),
        (("S", (33.0, 51.5, 0.0), "W", (151.0, 0.0, 0.0)), (-33.858333, -151.0)),
        (("N", (0.0, 0.0, 0.0), "E", (0.0, 0.0, 0.0)), (None, None)),
        (("N", (91.0, 0.0, 0.0), "E", (11.0, 0.0, 0.0)), (None, None)),
        (("N", (48.0, float("nan"), 0.0), "E", (11.0, 0.0, 0.0)), (None, None)),
        (("N", (48.0,), "E", (11.0, 0.0, 0.0)), (None, None)),
        (("N", "48", "E", None), (None, None)),
        ((), (None, None)),
    ],
)
def test_place(values: tuple[Any, ...], place: tuple[float | None, float | None]) -> None:
    metadata = read_metadata(gps(*values))
    assert (metadata.latitude, metadata.longitude) == place


@pytest.mark.parametrize(("value", "found"), [(6, 6), (0, 1), (9, 1), ("6", 1), (None, 1)])
def test_orientation(value: Any, found: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    assert orientation(exif) == found


def test_a_clip_of_a_phone_gives_its_own_local_time() -> None:
    prefix = "com.apple.quicktime."
    tags = {
        "creation_time": "2024-07-31T16:05:00.000000Z",
        f"{prefix}creationdate": "2024-07-31T18:05:00+0200",
        f"{prefix}location.ISO6709": "+48.1370-011.5753+519.000/",
        f"{prefix}make": "Apple",
        f"{prefix}model": "iPhone 15 Pro",
    }
    expected = Metadata("2024-07-31T18:05:00", "Apple iPhone 15 Pro", 48.137, -11.5753)
    assert clip_metadata(tags) == expected


def test_other_clips_give_universal_time() -> None:
    metadata = clip_metadata({"creation_time": "2024-07-31T16:05:00Z", "location": "-33.85+151.2/"})
    local = datetime(2024, 7, 31, 16, 5, tzinfo=UTC).astimezone().replace(tzinfo=None)
    assert metadata == Metadata(local.isoformat(), None, -33.85, 151.2)


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"creation_time": "1904-01-01T00:00:00Z", "location": "nowhere"},
        {"creation_time": "9999-99-99", "location": "+99+200"},
        {"com.apple.quicktime.creationdate": "1970-01-01T00:00:00Z", "location": "+0+0"},
    ],
)
def test_a_clip_whose_clock_was_never_set_gives_nothing(tags: dict[str, str]) -> None:
    assert clip_metadata(tags) == Metadata()
