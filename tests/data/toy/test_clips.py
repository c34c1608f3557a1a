"""Clips show the motion of their event, and their files contain the frames."""

from __future__ import annotations

import sys
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from polyglance.data.toy import ToyDataset, write_clip
from polyglance.data.toy.items import Clip
from polyglance.data.toy.scenes import PlacedThing
from polyglance.data.toy.video import clip_suffix
from polyglance.errors import MissingExtraError, PolyglanceError


@pytest.fixture(scope="module")
def clips() -> list[Clip]:
    return list(ToyDataset(seed=4).clips(40))


def centre(frame: np.ndarray, placed: PlacedThing) -> np.ndarray:
    """The middle of the pixels that have the thing's colour, in fractions of the side."""
    close = np.abs(frame.astype(int) - np.array(placed.rgb)).max(axis=2) < 30
    rows, columns = np.nonzero(close)
    return np.array([columns.mean(), rows.mean()]) / frame.shape[0]


def test_the_mover_follows_the_event_and_the_other_stays_still(clips: list[Clip]) -> None:
    headings = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
    lengths: dict[str, list[float]] = {"slow": [], "fast": []}
    for clip in clips:
        frames, event = clip.frames(size=96, frames=5), clip.film.event
        path = [centre(frame, clip.film.mover) for frame in frames]
        moved = path[-1] - path[0]
        heading = np.array(headings[event.direction])
        assert moved @ heading > 0.1
        assert np.abs(moved - (moved @ heading) * heading).max() < 0.02
        # At an even speed.
        assert np.abs(path[2] - (path[0] + path[-1]) / 2).max() < 0.02
        stayed = centre(frames[-1], clip.film.still) - centre(frames[0], clip.film.still)
        assert np.abs(stayed).max() < 0.01
        assert event.speed is not None
        lengths[event.speed].append(float(moved @ heading))
    assert max(lengths["slow"]) * 2 < min(lengths["fast"])


def test_frames_are_evenly_spaced_and_of_the_given_number(clips: list[Clip]) -> None:
    assert clips[0].frames().shape == (32, 64, 64, 3)
    few, many = clips[0].frames(frames=3), clips[0].frames(frames=5)
    assert np.array_equal(few, many[::2])
    with pytest.raises(PolyglanceError, match="at least one frame"):
        clips[0].frames(frames=0)


def test_an_mp4_contains_the_frames(tmp_path: Path, clips: list[Clip]) -> None:
    frames = clips[1].frames(size=64)
    for name in ("one.mp4", "two.mp4"):
        write_clip(tmp_path / name, frames)
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "two.mp4").read_bytes()
    with av.open(str(tmp_path / "one.mp4")) as file:
        assert file.streams.video[0].average_rate == 8
        decoded = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
    assert decoded.shape == frames.shape
    assert np.abs(decoded.astype(int) - frames).mean() < 8


@pytest.mark.parametrize("suffix", [".webp", ".gif"])
def test_animated_images_contain_the_frames_without_pyav(
    tmp_path: Path, clips: list[Clip], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    frames = clips[2].frames(size=48, frames=6)
    write_clip(tmp_path / f"clip{suffix}", frames)
    with Image.open(tmp_path / f"clip{suffix}") as picture:
        assert picture.n_frames == 6
        picture.seek(5)
        last = np.asarray(picture.convert("RGB")).astype(int)
    assert np.abs(last - frames[5]).mean() < 12


def test_without_pyav_mp4_is_refused_and_webp_chosen(
    tmp_path: Path, clips: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert clip_suffix() == ".mp4"
    monkeypatch.setitem(sys.modules, "av", None)
    assert clip_suffix() == ".webp"
    with pytest.raises(MissingExtraError, match=r"polyglance\[video\]"):
        write_clip(tmp_path / "clip.mp4", clips[0].frames(frames=2))


def test_invalid_paths_and_sizes_are_refused(tmp_path: Path, clips: list[Clip]) -> None:
    with pytest.raises(PolyglanceError, match="written as"):
        write_clip(tmp_path / "clip.txt", clips[0].frames(frames=2))
    with pytest.raises(PolyglanceError, match="even sides"):
        write_clip(tmp_path / "clip.mp4", clips[0].frames(size=33, frames=2))
