from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from polyglance.cli import app, main
from polyglance.demo.photographs import FOLDER

FILES = [str(FOLDER / f"{name}.webp") for name in ("cow", "duck")]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> str:
    monkeypatch.setattr("sys.argv", ["polyglance", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "my.polyglance")


def test_it_tells_what_it_did_and_names_bad_files(place: str, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_image(photos / "a.png", "red")
    (photos / "phone.heic").write_bytes(b"x")
    (photos / "torn.jpg").write_bytes(b"x")
    told = run("index", str(photos), "--library", place, "--thumbnails")
    assert "skipped" in told
    assert "phone.heic: HEIC files are not read" in told
    assert "torn.jpg: is not a picture of a known kind" in told
    assert "1 added in" in told
    assert "; 1 in all" in told
    again = run("index", "--library", place)
    assert "1 unchanged; 1 in all" in again
    assert "torn.jpg" in again


def test_only_the_first_bad_files_are_named(place: str, tmp_path: Path) -> None:
    write_image(tmp_path / "photos" / "a.png", "red")
    for number in range(13):
        (tmp_path / "photos" / f"{number}.heic").write_bytes(b"x")
    told = run("index", str(tmp_path / "photos"), "--library", place)
    assert told.count("HEIC") == 10
    assert "skipped 3 more" in told


def test_a_folder_without_a_readable_picture_ends_with_status_1(place: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "torn.jpg").write_bytes(b"x")
    done = CliRunner().invoke(app, ["index", str(tmp_path / "photos"), "--library", place])
    assert done.exit_code == 1


def test_mistakes_are_told_in_a_sentence(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "no such file or folder" in fails(
        capsys, monkeypatch, "index", str(tmp_path / "nothing"), "-l", place
    )
    assert "there is no library here" in fails(capsys, monkeypatch, "index", "-l", place)
    assert "there is no model 'x'" in fails(
        capsys, monkeypatch, "index", *FILES, "-l", place, "--model", "x"
    )
