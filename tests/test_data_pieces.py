"""Data goes to another machine in pieces, and nothing that a manifest names is left behind."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tools.data_pieces import main, named_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a manifest of 30 pictures of 10 kB in a linked folder, and a text of 400 kB."""
    data, noise = tmp_path / "data", np.random.default_rng(0)
    (tmp_path / "elsewhere").mkdir()
    (data / "photos").mkdir(parents=True)
    (data / "photos" / "images").symlink_to(tmp_path / "elsewhere")
    for number in range(30):
        (data / "photos" / "images" / f"{number}.webp").write_bytes(noise.bytes(10_000))
    lines = [json.dumps({"image": f"images/{number}.webp"}) for number in (*range(30), 3)]
    (data / "photos" / "train.jsonl").write_text("\n".join([*lines, json.dumps({"captions": {}})]))
    (data / "text").mkdir()
    (data / "text" / "pairs.tsv").write_text("ein Hund\ta dog\n" * 25_000)
    return data


def test_pieces_bring_everything_that_is_named(data: Path, tmp_path: Path) -> None:
    named = ["--manifest", "photos/train.jsonl", "--file", "text"]
    assert main(["pack", str(data), str(tmp_path / "pieces"), *named, "--megabytes", "0.1"]) == 0
    pieces = sorted((tmp_path / "pieces").iterdir())
    assert len(pieces) == 4
    assert all(piece.stat().st_size <= 100_000 for piece in pieces)
    there = tmp_path / "there"
    for place, piece in enumerate(pieces):
        assert main(["unpack", str(piece), str(there)]) == 0
        if place == 0:  # files come first
            assert (there / "text" / "pairs.tsv").is_file()
        assert main(["check", str(there), "--manifest", "photos/train.jsonl"]) == int(place < 3)
    for path in named_files(data, ["photos/train.jsonl"]):
        assert (there / path).read_bytes() == (data / path).read_bytes()


def test_a_folder_goes_with_linked_folders_in_it(data: Path, tmp_path: Path) -> None:
    assert main(["pack", str(data), str(tmp_path / "pieces"), "--file", "photos"]) == 0
    assert main(["unpack", str(tmp_path / "pieces" / "00.zip"), str(tmp_path / "there")]) == 0
    assert main(["check", str(tmp_path / "there"), "--manifest", "photos/train.jsonl"]) == 0


def test_files_that_are_named_twice_are_packed_once(data: Path, tmp_path: Path) -> None:
    named = ["--file", "photos", "--manifest", "photos/train.jsonl"]
    assert main(["pack", str(data), str(tmp_path / "pieces"), *named]) == 0
    with zipfile.ZipFile(tmp_path / "pieces" / "00.zip") as archive:
        names = archive.namelist()
    assert sorted(names) == sorted({*named_files(data, ["photos/train.jsonl"])})
    with pytest.raises(SystemExit, match="holds files already"):
        main(["pack", str(data), str(tmp_path / "pieces"), *named])


def test_a_manifest_that_has_not_arrived_is_missing(tmp_path: Path) -> None:
    assert main(["check", str(tmp_path), "--manifest", "photos/train.jsonl"]) == 1


def test_a_missing_picture_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "photos" / "images" / "7.webp").unlink()
    assert main(["check", str(data), "--manifest", "photos/train.jsonl"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "31 files are named, 1 are missing\n"
    assert printed.err == "photos/images/7.webp\n"


def test_a_file_larger_than_a_piece_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"0.webp is larger than a piece"):
        main(["pack", str(data), str(tmp_path / "pieces"), "--manifest", "photos/train.jsonl",
              "--megabytes", "0.005"])  # fmt: skip
