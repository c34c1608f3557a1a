from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.colour_encoder import write_image
from polyglance.errors import PolyglanceError
from polyglance.search.scan import ScannedFile, has_content, is_within, resolve_path, scan
from polyglance.search.store import BadFile


def split(folder: Path, left_out: tuple[str, ...] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """Return the kinds of scanned files and the reasons of bad ones, by relative path."""
    place = resolve_path(folder)
    files = list(scan(place, left_out))
    return (
        {
            one.path.removeprefix(f"{place}/"): one.kind
            for one in files
            if isinstance(one, ScannedFile)
        },
        {
            one.path.removeprefix(f"{place}/"): one.reason
            for one in files
            if isinstance(one, BadFile)
        },
    )


def test_pictures_and_clips_are_listed_in_order_and_other_files_skipped(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "a.png", "b/1.webp", "c.mp4", "d.MTS", ".hidden.png", ".dir/x.png"):
        write_image(tmp_path / "x.png", "red")
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        (tmp_path / "x.png").rename(target)
    (tmp_path / "notes.txt").write_text("no picture")
    candidates, bad = split(tmp_path)
    assert list(candidates.items()) == [
        ("a.png", "picture"), ("b/1.webp", "picture"), ("b/2.JPG", "picture"),
        ("c.mp4", "clip"), ("d.MTS", "clip"),
    ]  # fmt: skip
    assert bad == {}


def test_a_scanned_file_has_the_signature_of_its_file(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.png", "red")
    os.utime(path, ns=(5, 1_700_000_000_123_456_789))
    [files] = scan(resolve_path(path))
    assert isinstance(files, ScannedFile)
    assert (files.signature.size, files.signature.mtime_ns) == (
        path.stat().st_size, 1_700_000_000_123_456_789,
    )  # fmt: skip


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "photos", tmp_path / "private"
    write_image(inside / ".store" / "real.png", "red")
    write_image(outside / "secret.png", "blue")
    (inside / "kept.png").symlink_to(inside / ".store" / "real.png")
    (inside / "out.png").symlink_to(outside / "secret.png")
    (inside / "up.png").symlink_to("../private/secret.png")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "nowhere.png").symlink_to(inside / "missing.png")
    candidates, bad = split(inside)
    assert list(candidates) == ["kept.png"]
    assert set(bad) == {"out.png", "up.png", "folder", "loop", "nowhere.png"}
    assert "leads out" in bad["out.png"]
    assert "leads out" in bad["up.png"]


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "layers.PSD").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"x")
    (tmp_path / "folder.jpg").mkdir()
    candidates, bad = split(tmp_path)
    assert candidates == {}
    assert bad["layers.PSD"] == "PSD files are not supported: convert it to JPEG"
    assert "not a file" in bad["pipe.png"]
    assert "UTF-8" in bad[os.fsdecode(b"caf\xe9.png")]


@pytest.mark.parametrize("package", ["heif", "raw"])
def test_files_that_need_a_missing_package_are_reported_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in ("IMG_1.HEIC", "a.hif", "b.cr2", "c.DNG", "d.jpg"):
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(f"polyglance.vision.{package}.can_read_{package}", lambda: False)
    candidates, bad = split(tmp_path)
    needed = ["IMG_1.HEIC", "a.hif"] if package == "heif" else ["b.cr2", "c.DNG"]
    assert sorted(bad) == needed
    assert set(candidates) == {"IMG_1.HEIC", "a.hif", "b.cr2", "c.DNG", "d.jpg"} - set(needed)
    assert set(bad.values()) == {
        "HEIC and RAW pictures need optional packages: pip install 'polyglance[photos]'"
    }


def test_excluded_paths_are_skipped(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/b/2.png", "ab/3.png", "4.png"):
        write_image(tmp_path / name, "red")
    place = resolve_path(tmp_path)
    candidates, _ = split(tmp_path, (f"{place}/a", f"{place}/4.png"))
    assert list(candidates) == ["ab/3.png"]


def test_a_folder_without_permission_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not has_content(str(tmp_path))

    def deny(place: str) -> None:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr(os, "scandir", deny)
    with pytest.raises(PolyglanceError, match=r"the folder cannot be read \(Permission denied"):
        has_content(str(tmp_path))


def test_resolve_path() -> None:
    assert is_within("/a/b", "/a")
    assert is_within("/a", "/a")
    assert is_within("/a", "/")
    assert not is_within("/ab", "/a")
    with pytest.raises(PolyglanceError, match="is not a path"):
        resolve_path("a\0b")
    with pytest.raises(PolyglanceError, match="not UTF-8"):
        resolve_path(os.fsdecode(b"caf\xe9"))
    with pytest.raises(PolyglanceError, match="no such file"):
        list(scan("/nowhere/at/all"))
