"""Hostile files in processes with limits; what they take is bounded by the kernel."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.errors import PolyglanceError
from polyglance.vision.limited_decoding import (
    ClipFrame,
    ClipHeader,
    DecodeLimits,
    DecodingError,
    FileStamp,
    read_limited_square,
    sample_limited_frames,
    sample_limited_squares,
)
from polyglance.vision.pictures import read_square

LIMITS = DecodeLimits()


def failure(path: Path, limits: DecodeLimits) -> DecodingError:
    def decode() -> object:
        if path.suffix in (".png", ".jpg"):
            return read_limited_square(path, 32, "squash", limits)
        return list(sample_limited_frames(path, limits, min_side=32))

    with pytest.raises(DecodingError) as caught:
        decode()
    return caught.value


def many_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG that repeats an empty scan over all its pixels."""
    out = io.BytesIO()
    Image.new("L", (side, side)).save(out, "JPEG", progressive=True)
    sound = out.getvalue()
    last = sound.rindex(b"\xff\xda")
    return sound[:last] + sound[last:-2] * scans + sound[-2:]


@pytest.mark.parametrize("resize", ["squash", "centre"])
def test_a_square_is_the_same_as_without_limits(tmp_path: Path, resize: str) -> None:
    path = tmp_path / "a.jpg"
    pixels = np.random.default_rng(0).integers(0, 256, (300, 500, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    found = read_limited_square(path, 64, resize, LIMITS)  # type: ignore[arg-type]
    expected = read_square(path, 64, resize)  # type: ignore[arg-type]
    assert np.array_equal(found.pixels, expected.pixels)
    assert found.frame == expected.frame


def test_a_picture_of_many_scans_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(many_scans(3000, 20_000))  # would take a minute
    error = failure(path, DecodeLimits(max_seconds=1))
    assert str(error) == f"{path}: takes more than the limit of 1 s to decode"
    assert not error.passing


def write_large_clip(path: Path, side: int) -> Path:
    """Write a small file of two frames of ``side`` x ``side`` pixels."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=2)
        stream.width, stream.height, stream.pix_fmt = side, side, "yuv420p"
        frame = av.VideoFrame.from_image(Image.new("RGB", (side, side)))
        for _ in range(4):
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_a_clip_of_large_frames_is_refused_or_stopped(tmp_path: Path) -> None:
    path = write_large_clip(tmp_path / "a.mp4", 2048)
    assert path.stat().st_size < 200_000
    error = failure(path, DecodeLimits(max_frame_pixels=2048 * 2048 - 1))
    assert str(error).endswith("2048 x 2048 pixels are more than the limit of 4,194,303")
    error = failure(path, DecodeLimits(max_memory=12_000_000))
    assert str(error).endswith("takes more than the limit of 12 MB to decode")
    assert len(list(sample_limited_frames(path, LIMITS, min_side=32))) == 3


def test_frames_larger_than_the_header_says_are_not_decoded(tmp_path: Path) -> None:
    """The limit holds inside the decoder, too, where a later frame may be larger."""
    large = write_large_clip(tmp_path / "a.mkv", 512).read_bytes()
    # Matroska says width and height itself, in elements B0 and BA; the stream says it again.
    for name in (b"\xb0\x82", b"\xba\x82"):
        assert name + struct.pack(">H", 512) in large
        large = large.replace(name + struct.pack(">H", 512), name + struct.pack(">H", 16))
    path = tmp_path / "b.mkv"
    path.write_bytes(large)
    error = failure(path, DecodeLimits(max_frame_pixels=100_000))
    assert not error.passing


def test_a_playlist_opens_no_other_file(clip, tmp_path: Path) -> None:
    """FFmpeg would read the files, or fetch the addresses, that a playlist names."""
    other = clip("other.ts", [i / 10 for i in range(24)])
    path = tmp_path / "a.mp4"
    path.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:2,\nfile://{other}\n#EXT-X-ENDLIST")
    error = failure(path, LIMITS)
    assert not error.passing
    path.write_text(f"ffconcat version 1.0\nfile {other.name}\n")
    assert not failure(path, LIMITS).passing


def test_a_clip_says_what_it_is_and_then_its_frames(clip) -> None:
    path = clip("clip.mp4", [i / 10 for i in range(26)])
    header, *frames = sample_limited_frames(path, LIMITS, min_side=8)
    assert isinstance(header, ClipHeader)
    assert header.seconds == pytest.approx(2.6, abs=0.2)
    assert all(isinstance(frame, ClipFrame) for frame in frames)
    seconds = [second for _, second in sample_limited_squares(path, None, 16, "squash", LIMITS)]
    assert [frame.second for frame in frames] == seconds == [(0, 1), (1, 2), (2, 3)]
    part = list(sample_limited_squares(path, (1.0, 2.0), 16, "squash", LIMITS))
    assert [second for _, second in part] == [(1, 2)]


def test_a_clip_that_changed_since_it_was_hashed_is_not_decoded(clip) -> None:
    path = clip("clip.mp4", [0, 0.1, 0.2])
    stamp = FileStamp.of(path.stat())
    assert len(list(sample_limited_frames(path, LIMITS, min_side=8, stamp=stamp))) == 2
    os.utime(path, ns=(1, 1))
    with pytest.raises(DecodingError, match="changes while it is read") as caught:
        list(sample_limited_frames(path, LIMITS, min_side=8, stamp=stamp))
    assert (caught.value.passing, caught.value.is_changing) == (True, True)


def test_what_cannot_be_read_is_told_from_what_cannot_be_decoded(tmp_path: Path) -> None:
    for name in ("a.png", "a.mp4"):
        path = tmp_path / name
        error = failure(path, LIMITS)
        assert (str(error), error.passing) == (
            f"{path}: cannot be read (No such file or directory)",
            True,
        )
        path.write_bytes(b"no picture and no clip")
        assert not failure(path, LIMITS).passing


def test_limits_are_checked_and_known_by_the_reasons_they_give() -> None:
    with pytest.raises(PolyglanceError, match="max_memory must be 1 or more, not 0"):
        DecodeLimits(max_memory=0)
    reason = "takes more than the limit of 20 s to decode"
    assert not LIMITS.is_outdated(reason)
    assert DecodeLimits(max_seconds=40).is_outdated(reason)
    assert not DecodeLimits(max_seconds=40).is_outdated("the file is truncated, only 3% is there")
