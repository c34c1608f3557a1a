"""HEIC and RAW files that are made to do harm, in processes with limits and as uploads."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import heif_files
from benchmarks.dng_files import dng
from benchmarks.heif_files import heic
from helpers.upload_files import file, photograph
from polyglance.utils.worker_pool import shared_pool
from polyglance.vision import heif, raw
from polyglance.vision.limited_decoding import DecodeLimits, DecodingError, read_limited_square
from polyglance.vision.pictures import read_square
from polyglance.vision.upload_decoder import decode
from polyglance.vision.uploads import RAW, UNKNOWN_FORMAT, UploadError, read_upload

WIDE = photograph(320, 240)


def many_tiles(side: int, columns: int) -> bytes:
    """A grid that shows one tile of noise everywhere."""
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    configuration, [sample] = heif_files._compress([noise], 0)
    size = columns * side, columns * side
    grid = struct.pack(">BBBBII", 0, 1, columns - 1, columns - 1, *size)
    items = [heif_files._Item(b"grid", grid, [1])]
    items += [heif_files._Item(b"hvc1", sample, [2, 0x83], hidden=True)] * columns**2
    properties = [heif_files._ispe(*size), heif_files._ispe(side, side), configuration]
    references = heif_files._reference(b"dimg", 1, range(2, 2 + columns**2))
    return heif_files._container(items, properties, references)


def failure(path: Path, content: bytes, limits: DecodeLimits) -> str:
    path.write_bytes(content)
    with pytest.raises(DecodingError) as caught:
        read_limited_square(path, 32, "squash", limits)
    assert not caught.value.passing
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.heic", heic(WIDE, tile=64)), ("a.dng", dng(photograph(400, 360), preview=380))],
)
def test_a_square_is_the_same_as_without_limits(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    found = read_limited_square(path, 32, "squash", DecodeLimits())
    assert np.array_equal(found.pixels, read_square(path, 32).pixels)


def test_a_picture_of_endless_tiles_is_stopped(tmp_path: Path) -> None:
    content = many_tiles(256, 30)
    assert len(content) < 300_000
    limits = DecodeLimits(max_seconds=1)
    reason = failure(tmp_path / "a.heic", content, limits)
    assert reason == "takes more than the limit of 1 s to decode"
    reason = failure(tmp_path / "a.heic", content, DecodeLimits(max_pixels=10**7))
    assert reason == "7680 x 7680 pixels are more than the limit of 10,000,000"


def test_pictures_that_need_too_much_memory_are_stopped(tmp_path: Path) -> None:
    shared_pool().close()  # a process that decoded before has free memory of its own
    flat = heic(Image.new("RGB", (1280, 1280)), tile=None)
    for name, content in (("a.heic", flat), ("a.dng", dng(WIDE, claim=(5000, 5000)))):
        reason = failure(tmp_path / name, content, DecodeLimits(max_memory=1_000_000))
        # libde265 ends the process where it gets no memory.
        expected = {"takes more than the limit of 1 MB to decode", "the decoder crashes on it"}
        assert reason in expected


def test_claims_of_the_header_are_refused(tmp_path: Path) -> None:
    for name, content in (
        ("a.heic", heic(WIDE, tile=64, claim=(30_000, 30_000))),
        ("a.dng", dng(WIDE, claim=(30_000, 30_000))),
    ):
        reason = failure(tmp_path / name, content, DecodeLimits())
        assert "30000 x 30000 pixels are more than the limit" in reason or "too many" in reason
    # Within the limit, but neither has pixels for it.
    for name, content in (
        ("a.heic", heic(WIDE, tile=64, claim=(4000, 4000))),
        ("a.dng", dng(WIDE)[:100_000]),
    ):
        assert failure(tmp_path / name, content, DecodeLimits())


@pytest.mark.parametrize("kind", ["heic", "dng"])
def test_no_changed_byte_does_more_than_spoil_the_picture(kind: str) -> None:
    """Uploads are decoded here without a process; only errors of the decoder may come."""
    sound = heic(photograph(64, 48), tile=32) if kind == "heic" else dng(photograph(64, 48))
    generator = np.random.default_rng(0)
    format_ = heif.FORMAT if kind == "heic" else RAW
    for _ in range(60):
        content = bytearray(sound)
        for place in generator.integers(0, min(len(content), 1500), 3):
            content[place] = generator.integers(256)
        try:
            picture = decode(bytes(content), format_, 100_000, 100)
        except UploadError:
            continue
        assert picture.mode == "RGB"
        assert max(picture.size) <= 100


def test_uploads_are_upright_and_bounded() -> None:
    picture = read_upload(heic(WIDE, tile=64, turns=3), max_side=200)
    assert picture.size == (150, 200)
    for preview in (0, 380):
        content = dng(photograph(400, 360), preview=preview, orientation=6)
        picture = decode(content, RAW, 200_000, 100)
        assert picture.size == (90, 100)
        assert np.asarray(picture)[5, 50, 0] > np.asarray(picture)[-5, 50, 0] + 50  # red on top
    with pytest.raises(UploadError, match=r"more pixels than allowed|more than the 50,000 allowed"):
        decode(heic(WIDE, tile=64), heif.FORMAT, 50_000, 100)
    with pytest.raises(UploadError):
        decode(dng(WIDE), RAW, 50_000, 100)


def test_an_upload_of_a_tiff_is_no_raw_file() -> None:
    with pytest.raises(UploadError) as caught:
        decode(file(WIDE, "TIFF"), RAW, 10**6, 100)
    assert str(caught.value) == UNKNOWN_FORMAT


def test_uploads_without_the_extra_name_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heif, "can_read_heif", lambda: False)
    monkeypatch.setattr(raw, "can_read_raw", lambda: False)
    for content in (heic(WIDE, tile=None), dng(WIDE)):
        with pytest.raises(UploadError, match=r"pip install 'polyglance\[photos\]'"):
            read_upload(content)
