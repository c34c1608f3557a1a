"""A folder as people have it: pictures of cameras and phones, clips, odd names, broken files."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from PIL import Image

from benchmarks.dng_files import dng
from benchmarks.heif_files import heic
from helpers.colour_encoder import RGB, write_clip

COLOURS = ("red", "green", "blue")
NEWEST = datetime(2024, 6, 15, 12)
DAYS = 700
"""Over which the JPEGs were taken; all other formats are of the newest month."""
_ODD_NAMES = (
    "with space.jpg", "-dash.jpg", "--help.jpg", "quote'.jpg", 'double".jpg', "new\nline.jpg",
    "emoji 🐶.jpg", "日本語.jpg", "صورة.jpg", "кот.jpg", "$(ls).jpg", "*.jpg", "per%20cent.jpg",
    "<b>.jpg", "UPPER.JPG", "a.b.c.jpeg",
)  # fmt: skip


@dataclass(frozen=True)
class MixedFolder:
    """What was written."""

    path: Path
    pictures: int
    clips: int
    bad: frozenset[str]
    """Names of the files that cannot be searched."""


def write_mixed_folder(folder: Path, count: int, seed: int = 0) -> MixedFolder:
    """Write about ``count`` files into folders named by their colours, and a few into others.

    One in 20 is HEIC, one in 40 RAW, one in 50 a clip and one in 20 broken; all others are JPEG.
    """
    draw = random.Random(seed)
    kinds = {".HEIC": count // 20, ".DNG": count // 40, ".MOV": count // 50}
    bad = _write_broken(folder / "broken", count // 20)
    for name in _ODD_NAMES:
        _jpeg(folder / "odd" / name, "red", draw)
    _jpeg(folder / ".hidden" / "a.jpg", "red", draw)  # is not looked for
    (folder / "odd" / "notes.txt").write_text("no picture")
    for suffix, number in kinds.items():
        contents = {colour: _content(folder, suffix, colour) for colour in COLOURS}
        for place in range(number):
            colour = COLOURS[place % 3]
            path = folder / colour / f"IMG_{place:04}{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(contents[colour])
            _set_date(path, NEWEST - timedelta(hours=place))
    rest = count - sum(kinds.values()) - len(bad) - len(_ODD_NAMES)
    for place in range(rest):
        colour = COLOURS[place % 3]
        path = folder / colour / f"DSC{place:05}.jpg"
        _jpeg(path, colour, draw)
        _set_date(path, NEWEST - timedelta(days=30 + DAYS * place // rest))
    clips = kinds[".MOV"]
    return MixedFolder(folder, count - len(bad) - clips, clips, frozenset(bad))


def _jpeg(path: Path, colour: str, draw: random.Random) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shade = tuple(abs(value - draw.randrange(60)) for value in RGB[colour])
    Image.new("RGB", (24 + draw.randrange(16), 16 + draw.randrange(16)), shade).save(path, "JPEG")


def _set_date(path: Path, date: datetime) -> None:
    os.utime(path, (date.timestamp(), date.timestamp()))


def _content(folder: Path, suffix: str, colour: str) -> bytes:
    picture = Image.new("RGB", (64, 64), colour)
    if suffix == ".HEIC":
        return heic(picture, tile=None)
    if suffix == ".DNG":
        return dng(picture)
    path = write_clip(folder / ".clips" / f"{colour}.mov", [(colour, 2)], codec="libx264")
    return path.read_bytes()


def _write_broken(folder: Path, count: int) -> list[str]:
    folder.mkdir(parents=True)
    contents = (
        ("torn.jpg", b"\xff\xd8\xff\xe0 torn"), ("empty.jpg", b""), ("text.png", b"no picture"),
        ("drawing.psd", b"8BPS"), ("empty.mp4", b""), ("torn.heic", b"\0\0\0\x18ftypheic"),
    )  # fmt: skip
    names = []
    for place in range(count):
        name, content = contents[place % len(contents)]
        names.append(f"{place:03} {name}")
        (folder / names[-1]).write_bytes(content)
    return names
