from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from polyglance.cli import app, main
from polyglance.demo.photographs import FOLDER
from polyglance.encoders.model_folder import ModelFolder

FILES = [str(FOLDER / f"{name}.webp") for name in ("cow", "duck")]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def error_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> str:
    monkeypatch.setattr("sys.argv", ["polyglance", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


@pytest.fixture
def library_path(tmp_path: Path) -> str:
    return str(tmp_path / "my.polyglance")


def test_report_and_bad_files_are_printed(library_path: str, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_image(photos / "a.png", "red")
    (photos / "drawing.psd").write_bytes(b"x")
    (photos / "torn.jpg").write_bytes(b"x")
    output = run("index", str(photos), "--library", library_path, "--thumbnails")
    assert "skipped" in output
    assert "drawing.psd: PSD files are not supported" in output
    assert "torn.jpg: is not a picture of a known kind" in output
    assert "1 added in" in output
    assert "; 1 in all" in output
    again = run("index", "--library", library_path)
    assert "1 unchanged; 1 in all" in again
    assert "torn.jpg" in again


def test_a_library_keeps_its_model(library_path: str, tmp_path: Path) -> None:
    write_image(tmp_path / "photos" / "a.png", "red")
    run("index", str(tmp_path / "photos"), "--library", library_path)
    moved = shutil.copytree(ModelFolder.open().path, tmp_path / "moved model")
    output = run("index", "--library", library_path, "--model", str(moved))
    assert (
        f"keeps the model that it was made with: to search it with this one, give --model '{moved}'"
        in output
    )
    assert "keeps the model" not in run(
        "index", "--library", library_path, "--model", "polyglance-small"
    )


def test_many_bad_files_are_counted_by_their_reasons(library_path: str, tmp_path: Path) -> None:
    write_image(tmp_path / "photos" / "a.png", "red")
    for number in range(13):
        (tmp_path / "photos" / f"{number}.psd").write_bytes(b"x")
    (tmp_path / "photos" / "torn.jpg").write_bytes(b"x")
    output = run("index", str(tmp_path / "photos"), "--library", library_path)
    assert "skipped 14 files:\n     13  the format is not supported" in output
    assert "      1  is not a picture of a known kind\n" in output
    assert f"`polyglance library problems -l {library_path}` lists them" in output
    listed = run("library", "problems", "-l", library_path)
    assert listed.count("PSD") == 13
    assert "torn.jpg: is not a picture" in listed


def test_limits_on_files(library_path: str, tmp_path: Path) -> None:
    write_image(tmp_path / "photos" / "large.png", "red", (40, 30))
    write_image(tmp_path / "photos" / "small.png", "red", (4, 3))
    limits = ("--max-pixels", "100", "--max-seconds", "9", "--max-memory", "900", "--threads", "1")
    output = run("index", str(tmp_path / "photos"), "-l", library_path, *limits, "--quiet")
    assert "large.png: 40 x 30 pixels are more than the limit of 100" in output
    assert "1 added" in output
    again = run("index", str(tmp_path / "photos"), "-l", library_path, "--again")
    assert "1 added, 1 changed" in again  # under the limits that are usual, and anew


def test_a_named_file_that_is_no_picture_is_reported(library_path: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("x")
    files = [str(tmp_path / "notes.txt"), str(tmp_path / "folder")]
    done = CliRunner().invoke(app, ["index", *files, "-l", library_path])
    assert done.stderr == f"skipped {files[0]}: is no picture or clip, by the end of its name\n"


def test_no_readable_picture_exits_with_status_1(library_path: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "torn.jpg").write_bytes(b"x")
    done = CliRunner().invoke(app, ["index", str(tmp_path / "photos"), "--library", library_path])
    assert done.exit_code == 1


def test_errors_are_one_sentence(
    library_path: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert "no such file or folder" in error_of(
        capsys, monkeypatch, "index", str(tmp_path / "nothing"), "-l", library_path
    )
    place = f"{library_path} with a space"
    advice = error_of(capsys, monkeypatch, "index", "-l", place)
    assert "there is no library here" in advice
    assert f"`polyglance index FOLDER --library '{place}'` creates one" in advice
    monkeypatch.setenv("POLYGLANCE_LIBRARY", library_path)
    assert "`polyglance index FOLDER` creates one" in error_of(capsys, monkeypatch, "search", "a")
    assert "there is no model 'x'" in error_of(
        capsys, monkeypatch, "index", *FILES, "-l", library_path, "--model", "x"
    )
