from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.colour_encoder import RGB, write_clip, write_image, write_random_images
from polyglance.search import library_contents
from polyglance.search.library import Library


@pytest.fixture
def filled(library: Library, photos: Path) -> Library:
    """A library of three pictures and a clip of two spans."""
    for name in ("b red", "a green", "c/blue"):
        write_image(photos / f"{name}.png", name.split()[-1].split("/")[-1])
    write_clip(photos / "d.mp4", [("red", 3), ("blue", 3)])
    library.add(photos)
    return library


def test_a_library_is_a_sequence_of_its_items_by_path(
    filled: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_contents, "READ_BLOCK", 2)  # several blocks
    names = ["a green.png", "b red.png", "c/blue.png", "d.mp4"]
    items = list(filled)
    assert [item.path for item in items] == [photos / name for name in names]
    assert len(filled) == 4
    assert [item.kind for item in items] == ["picture"] * 3 + ["clip"]
    assert items[-1].seconds == pytest.approx(6, abs=0.2)
    assert all(item.span is None for item in items)
    assert filled[0] == items[0] == filled[-4]
    assert filled[3] == filled[-1] == items[3]
    for part in (slice(1, 3), slice(None, None, -2), slice(2, 99), slice(3, 1), slice(None)):
        assert filled[part] == items[part]
    for position in (4, -5):
        with pytest.raises(IndexError, match="has 4 items"):
            filled[position]
    for item in items:
        assert filled.get(item.id) is not None
        assert filled.vector(item).shape == (12,)
    assert np.argmax(filled.vector(items[1])[:3]) == 0  # red


def test_items_by_path(filled: Library, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    assert filled["c/blue.png"] == filled[2]
    assert filled[photos / "c" / "blue.png"] == filled[2]
    assert "c/blue.png" in filled
    assert photos / "d.mp4" in filled
    assert filled[1] in filled
    assert "c" not in filled
    assert 3 not in filled
    with pytest.raises(KeyError, match=r"c/green.png is not in the library"):
        filled["c/green.png"]
    assert filled.has_files_in("c")
    assert not filled.has_files_in("e")


def test_offset_continues_a_search(library: Library, photos: Path) -> None:
    write_random_images(photos, 9)
    library.add(photos)
    whole = [hit.id for hit in library.search("red", k=9)]
    assert [hit.id for hit in library.search("red", k=4, offset=3)] == whole[3:7]
    assert [hit.id for hit in library.search("red", k=4, offset=7)] == whole[7:]
    assert library.search("red", offset=9) == []


def test_progress_is_reported_and_may_end_a_run(library: Library, photos: Path) -> None:
    write_random_images(photos, 6)
    (photos / "torn.jpg").write_bytes(b"x")
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        library.add(photos, progress=stop)
    assert seen[0] == (0, 7)
    assert 0 < len(library) <= 6  # what was stored stays
    seen.clear()
    library.update(progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 7)
    assert seen[-1] == (7, 7)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(library) == 6


def test_pictures_in_all_forms_find_the_same(filled: Library, photos: Path) -> None:
    path = photos / "a green.png"
    image = Image.open(path)
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG")
    pixels = np.full((5, 4, 3), RGB["green"], np.uint8)
    for picture in (path, str(path), path.read_bytes(), jpeg.getvalue(), image, pixels):
        assert filled.search(picture=picture, k=1)[0].path == path
        assert filled.search("blue", exclude_picture=picture)[-1].path == path


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_problems_name_files_without_permission(filled: Library, photos: Path) -> None:
    (photos / "a green.png").chmod(0)
    assert [(bad.path, bad.reason) for bad in filled.problems()] == [
        (str(photos / "a green.png"), "cannot be read (Permission denied)")
    ]


def test_problems_are_those_on_record_and_those_of_the_folders(
    filled: Library, photos: Path
) -> None:
    assert filled.problems() == []
    (photos / "c" / "torn.jpg").write_bytes(b"x")
    (photos / "gone.jpg").write_bytes(b"x")
    (photos / "drawing.svg").write_text("<svg/>")
    (photos / "out.png").symlink_to(photos.parent / "elsewhere.png")
    filled.update()
    (photos / "gone.jpg").unlink()
    found = {Path(bad.path).name: bad.reason for bad in filled.problems()}
    assert set(found) == {"torn.jpg", "drawing.svg", "out.png"}
    assert "not a picture" in found["torn.jpg"]
    assert "SVG" in found["drawing.svg"]
    assert [Path(bad.path).name for bad in filled.problems(photos / "c")] == ["torn.jpg"]
    filled.remove(photos / "c")
    assert {Path(bad.path).name for bad in filled.problems()} == {"drawing.svg", "out.png"}


def test_a_notebook_shows_thumbnails(filled: Library, photos: Path, tmp_path: Path) -> None:
    assert repr(filled) == f"Library('{tmp_path / 'my.polyglance'}')"
    page = filled._repr_html_()
    assert page.count("<img") == 4
    assert "3 pictures, 1 clip" in page
    assert f'title="{photos / "c" / "blue.png"}"' in page
    found = filled.search("red", k=2)
    shown = found._repr_html_()
    assert shown is not None
    assert shown.count("<img") == 2
    assert "2 hits" in shown
    assert f"<b>{found[0].score:.2f}</b> {found[0].path.name}" in shown
    (photos / "a green.png").unlink()
    assert filled._repr_html_().count("<img") == 3  # a box without a picture
    with Library(tmp_path / "none.polyglance") as empty:
        assert "there is no library here" in empty._repr_html_()
        assert "x.png" not in empty
