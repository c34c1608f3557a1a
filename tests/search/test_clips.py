from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from helpers.colour_encoder import ColourEncoder, write_clip
from polyglance.search import clips
from polyglance.search.clips import middle_frame, split_into_spans
from polyglance.search.library import Library


def test_seconds_that_look_alike_are_one_span_with_their_mean() -> None:
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [0, 1], [0.28, 0.96]], np.float32)
    seconds = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 4.7)]
    spans, means = split_into_spans(vectors, seconds, min_similarity=0.7)
    assert spans == ((0.0, 2.0), (2.0, 4.7))
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(means[0], np.array([1.8, 0.6]) / np.hypot(1.8, 0.6), atol=1e-6)


def test_long_shots_are_cut_into_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clips, "MAX_SPAN_SECONDS", 3)
    vectors = np.ones((7, 1), np.float32)
    seconds = [(float(i), i + 1.0) for i in range(7)]
    assert split_into_spans(vectors, seconds)[0] == ((0, 3), (3, 6), (6, 7))


def test_a_clip_is_found_as_the_span_that_shows_it(library: Library, photos: Path) -> None:
    write_clip(photos / "a.mp4", [("red", 4), ("blue", 3), ("green", 2.3)])
    write_clip(photos / "b.avi", [("blue", 1.6)])
    report = library.add(photos, thumbnails=True)
    assert (report.added, report.bad) == (2, ())
    blue = library.search("blue")
    assert sorted((hit.path.name, hit.span) for hit in blue) == [
        ("a.mp4", (4.0, 7.0)), ("b.avi", (0.0, 1.6)),
    ]  # fmt: skip
    assert all(hit.score > 0.95 and hit.kind == "clip" for hit in blue)
    [red, *_] = library.search("red", k=1)
    assert (red.span, red.width, red.height) == ((0.0, 4.0), 64, 48)
    assert red.seconds == pytest.approx(9.3, abs=0.11)
    assert len(library.search("red", all_segments=True)) == 4
    assert library.picture(blue[0]).getpixel((5, 5))[2] > 200  # type: ignore[index]
    assert len(library.search("red", kind="picture")) == 0


def test_the_date_of_a_clip_is_that_of_its_camera(library: Library, photos: Path) -> None:
    path = photos / "a.mp4"
    with av.open(str(path), "w") as container:
        container.metadata["creation_time"] = "2021-03-04T12:00:00Z"
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(10):
            container.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", (64, 48)))))
        container.mux(stream.encode())
    library.add(photos)
    [hit] = library.search("red")
    assert hit.taken.date().isoformat() in ("2021-03-04", "2021-03-05")


def test_a_clip_that_cannot_be_read_is_named(library: Library, photos: Path) -> None:
    (photos / "broken.mp4").write_bytes(b"no clip at all")
    whole = write_clip(photos / "whole.mp4", [("red", 2)]).read_bytes()
    (photos / "short.mp4").write_bytes(whole[: len(whole) // 3])
    report = library.add(photos)
    assert report.added == 1
    assert {Path(bad.path).name for bad in report.bad} == {"broken.mp4", "short.mp4"}


def test_without_the_video_extra_pictures_are_still_indexed(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (8, 8), "red").save(photos / "a.png")
    write_clip(photos / "a.mp4", [("red", 1)])
    with monkeypatch.context() as patch:
        patch.setattr("polyglance.search.indexing.can_read_clips", lambda: False)
        report = library.add(photos)
    assert report.added == 1
    assert "polyglance[video]" in report.bad[0].reason
    assert library.update().added == 1  # the error was not recorded


def test_a_span_is_shown_by_its_middle_frame(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", [("red", 2), ("blue", 2)])
    assert middle_frame(str(path), (2.0, 4.0)).getpixel((5, 5))[2] > 200  # type: ignore[index]
    assert middle_frame(str(path), None).getpixel((5, 5))[0] > 200  # type: ignore[index]
    assert ColourEncoder().encode_pictures([middle_frame(str(path), (3.0, 4.0))]).shape == (1, 12)
