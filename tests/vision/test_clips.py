"""Sampling one frame per second from real video files, sound and damaged."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from polyglance.vision import clips
from polyglance.vision.clips import ClipError, encode_clip, sample_frames

STEADY = [i / 10 for i in range(26)]
"""26 frames at ten per second, ending at 2.6 seconds or a little later."""


def frames(path: Path, span=None) -> tuple[list[int], list[tuple[float, float]]]:
    """Return the index of the frame sampled for each second, and the seconds."""
    numbers, spans = [], []
    for picture, second in sample_frames(path, span):
        assert picture.mode == "RGB"
        numbers.append(round(float(np.asarray(picture).mean()) / 9))
        spans.append(second)
    return numbers, spans


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_the_frame_in_the_middle_of_each_second_is_taken(clip, suffix):
    numbers, spans = frames(clip(f"clip.{suffix}", [i / 10 for i in range(24)]))
    # At 0.5 and 1.5 seconds; the remaining 0.4 seconds have no middle.
    assert numbers == [5, 15]
    assert spans == [(0, 1), (1, 2)]


def test_variable_frame_rates_are_sampled_by_time(clip):
    path = clip("clip.mkv", [0, 0.1, 0.2, 2.6, 2.7, 5.4])
    numbers, spans = frames(path)
    assert numbers == [2, 2, 2, 4, 4]
    assert spans == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_a_clip_shorter_than_half_a_second_has_one_frame(clip):
    numbers, spans = frames(clip("clip.mp4", [0, 0.04]))
    assert len(numbers) == 1
    assert spans == [(0, 1)]


def test_a_span_of_a_clip_is_sampled(clip):
    path = clip("clip.mp4", STEADY)
    assert frames(path, (1.0, 2.0)) == ([15], [(1, 2)])
    assert frames(path, (0.2, 2.3)) == ([7, 17], [(0.2, 1.2), (1.2, 2.2)])
    assert frames(path, (1.0, 1.4)) == ([12], [(1.0, 1.4)])
    with pytest.raises(ClipError, match="between 8 and 9 seconds"):
        frames(path, (8, 9))


def test_the_seconds_of_a_late_stream_count_from_its_beginning(clip):
    path = clip("clip.mkv", [100 + time for time in STEADY])
    assert frames(path)[0] == [5, 15, 25]


@pytest.mark.parametrize(
    ("degrees", "matrix"),
    [(90, (0, 1, -1, 0)), (180, (-1, 0, 0, -1)), (270, (0, -1, 1, 0))],
)
def test_rotated_video_is_turned_upright(clip, degrees, matrix):
    """As phones store it: the track's matrix rotates the pixels clockwise."""

    def paint(pixels: np.ndarray) -> None:
        pixels[:] = 0
        pixels[:24, :32] = 255  # the left upper quarter

    path = clip("clip.mp4", [0, 0.1, 0.2], paint)
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    a, b, c, d = (value << 16 for value in matrix)
    data[place : place + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    picture = next(iter(sample_frames(path)))[0]
    width, height = picture.size
    assert (width, height) == ((64, 48) if degrees == 180 else (48, 64))
    bright = {90: (3, 1), 180: (3, 3), 270: (1, 3)}[degrees]
    for x in (1, 3):
        for y in (1, 3):
            light = picture.getpixel((x * width // 4, y * height // 4))[0] > 128
            assert light == ((x, y) == bright)


def test_decodable_frames_of_a_damaged_clip_are_kept(clip):
    path = clip("clip.mkv", STEADY)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])
    assert frames(path)[0] == [5, 15]
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(200) + data[middle + 200 :])
    assert frames(path)[0][0] == 5


def test_a_file_without_frames_raises_a_clip_error(clip, tmp_path):
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    with pytest.raises(ClipError, match="has no video in it"):
        frames(tmp_path / "sound.wav")
    for name, data in (("empty.mp4", b""), ("text.mp4", b"text" * 99)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ClipError, match="cannot be read as a video"):
            frames(tmp_path / name)
    with pytest.raises(ClipError, match="No such file"):
        frames(tmp_path / "missing.mp4")
    path = clip("clip.mp4", STEADY)
    path.write_bytes(path.read_bytes()[:600])  # without its index
    with pytest.raises(ClipError):
        frames(path)


def test_cover_art_is_not_a_clip(tmp_path):
    import av
    from av.stream import Disposition

    path = tmp_path / "song.m4a"
    with av.open(str(path), "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=8000)
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 48, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), "fltp", "mono")
        silence.sample_rate = 8000
        frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), "rgb24")
        for stream, picture_or_sound in ((sound, silence), (cover, frame)):
            container.mux(stream.encode(picture_or_sound))
            container.mux(stream.encode(None))
    with av.open(str(path)) as container:
        assert container.streams.video[0].disposition == Disposition.attached_pic
    with pytest.raises(ClipError, match="has no video in it"):
        frames(path)


def test_a_wrong_time_stamp_is_refused(clip, monkeypatch):
    monkeypatch.setattr(clips, "MAX_SECONDS", 3600)
    with pytest.raises(ClipError, match="longer than 1 hours"):
        frames(clip("clip.mkv", [0, 0.1, 9000]))


def test_a_clip_becomes_one_token_per_second(clip, toy):
    backbone = toy.Toy(32)
    tokens = encode_clip(backbone, clip("clip.mp4", STEADY), labels=2, batch_size=2)
    assert tokens.features.shape == (3, 3)
    assert np.allclose(tokens.features[:, 0], [45, 135, 225], atol=5)
    assert np.allclose(tokens.global_feature, tokens.features.mean(0))
    assert tokens.spans.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert tokens.boxes.tolist() == [[0, 0, 1, 1]] * 3
    assert tokens.label_ids.shape == (3, 2)
    assert backbone.batches == 2
