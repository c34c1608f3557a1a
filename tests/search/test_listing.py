from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.colour_encoder import write_image, write_random_images
from polyglance.errors import PolyglanceError
from polyglance.search.bulk.listing import list_files, resolve_sources, source_root
from polyglance.search.scan import ScannedFile
from polyglance.search.store import BadFile


def test_a_folder_in_another_is_listed_once(tmp_path: Path) -> None:
    write_random_images(tmp_path / "a" / "b", 2)
    write_random_images(tmp_path / "ab", 1)
    paths = resolve_sources([tmp_path / "a" / "b", tmp_path / "ab", tmp_path / "a", tmp_path / "a"])
    assert paths == (str(tmp_path / "a"), str(tmp_path / "ab"))
    assert [Path(file.path).name for file in list_files(paths)] == [
        "0000.png",
        "0001.png",
        "0000.png",
    ]


def test_files_of_a_manifest_are_listed_once(tmp_path: Path) -> None:
    write_image(tmp_path / "images" / "a.png", "red")
    (tmp_path / "clip.mp4").write_bytes(b"x")
    (tmp_path / "images" / "a.dat").write_bytes(b"x")
    manifest = tmp_path / "test.jsonl"
    lines = [
        {"image": "images/a.png", "captions": {"en": ["Red."]}},
        {"image": "images/a.png", "captions": {"de": ["Rot."]}},
        {"image": "images/gone.png"},
        {"video": "clip.mp4"},
        {"captions": {"en": ["Words alone."]}},
        {"image": "https://example.org/a.png"},
        {"image": "images/a.dat"},
    ]
    manifest.write_text("\n".join(map(json.dumps, lines)) + "\nno record\n")
    files = list(list_files(resolve_sources([manifest])))
    good = [file for file in files if isinstance(file, ScannedFile)]
    assert [(file.path, file.kind) for file in good] == [
        (str(tmp_path / "images" / "a.png"), "picture"),
        (str(tmp_path / "clip.mp4"), "clip"),
    ]
    bad = {file.path: file.reason for file in files if isinstance(file, BadFile)}
    assert "no such file" in bad["images/gone.png"]
    assert "web address" in bad["https://example.org/a.png"]
    no_picture = bad[str(tmp_path / "images" / "a.dat")]
    assert no_picture == "is no picture or clip, by the end of its name"
    assert f"{manifest}:8" in bad
    assert len(bad) == 4


def test_the_root_of_a_source(tmp_path: Path) -> None:
    manifest = tmp_path / "test.jsonl"
    manifest.touch()
    assert source_root(str(tmp_path)) == str(tmp_path)
    assert source_root(str(manifest)) == str(tmp_path)


def test_a_missing_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="no such file or folder"):
        resolve_sources([tmp_path / "nothing"])
