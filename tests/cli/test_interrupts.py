from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import polyglance.__main__
from helpers.colour_encoder import ColourEncoder, write_random_images
from polyglance.cli import app
from polyglance.cli.interrupts import _KEPT, describe_run
from polyglance.search.library import Library


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A library of three pictures."""
    write_random_images(tmp_path / "photos", 3)
    with Library(tmp_path / "my.polyglance", model=ColourEncoder()) as library:
        library.add(tmp_path / "photos")
    return str(tmp_path / "my.polyglance")


def interrupt(monkeypatch: pytest.MonkeyPatch, where: str, *arguments: str) -> str:
    """Run a command that is interrupted in a function; return what it prints."""

    def stop(*values: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, stop)
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 130
    assert done.stdout == ""
    return done.stderr.strip()


def test_before_a_command_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polyglance.cli.main", stop)
    with pytest.raises(SystemExit) as ended:
        polyglance.__main__.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


def test_indexing_says_what_is_in_the_library(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "polyglance.search.library.Library.add"
    index = ("index", str(tmp_path / "photos"), "-l", place)
    kept = f"interrupted: 3 pictures and clips are in {place}; the same command"
    assert interrupt(monkeypatch, where, *index) == f"{kept} continues"
    assert interrupt(monkeypatch, where, *index, "--again") == f"{kept} starts over"
    where = "polyglance.search.library.Library.__init__"
    assert interrupt(monkeypatch, where, *index) == "interrupted: nothing was changed"


def test_encoding_counts_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "polyglance.search.bulk.encoding.encode"
    said = interrupt(monkeypatch, where, "encode", str(tmp_path), "--out", str(tmp_path / "out"))
    assert said == "interrupted: no file was encoded yet"


def test_tars_that_are_not_finished_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(tmp_path / "photos", 3)
    images = [{"image": str(path)} for path in (tmp_path / "photos").iterdir()]
    manifest = tmp_path / "all.jsonl"
    manifest.write_text("".join(f"{json.dumps(image)}\n" for image in images), encoding="utf-8")
    command = ("data", "shard", str(manifest), "--out", str(tmp_path / "out" / "train"))
    where = "polyglance.data.tar_writer._Tars.close"
    said = interrupt(monkeypatch, where, *command, "--workers", "0", "--quiet")
    assert said == "interrupted: nothing was written"
    assert list((tmp_path / "out").iterdir()) == []
    assert CliRunner().invoke(app, command).exit_code == 0


@pytest.mark.parametrize(
    ("where", "arguments", "kept"),
    [
        ("search", ["search", "a"], "nothing was changed"),
        ("verify", ["library", "verify"], "nothing was changed"),
        ("export", ["library", "export", "x.npy"], "nothing was written"),
        ("remove", ["library", "remove", "x"], None),
    ],
)
def test_other_commands_of_a_library(
    place: str,
    where: str,
    arguments: list[str],
    kept: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = interrupt(
        monkeypatch, f"polyglance.search.library.Library.{where}", *arguments, "-l", place
    )
    assert said == (f"interrupted: {kept}" if kept else "interrupted")


def test_training_names_its_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has no checkpoint yet" in describe_run(tmp_path)
    for stage, step in (("pretraining", 1500), ("fine_tuning", 20)):
        (tmp_path / stage / "latest").mkdir(parents=True)
        (tmp_path / stage / "latest" / "state.json").write_text(json.dumps({"step": step}))
    where = "polyglance.training.distributed.init_distributed"
    arguments = ("train", "uc2-flickr8k", "--data", str(tmp_path), "--out", str(tmp_path))
    assert interrupt(monkeypatch, where, *arguments) == (
        f"interrupted: {tmp_path} keeps fine_tuning at step 20, pretraining at step 1,500;"
        " the same command resumes there"
    )
    monkeypatch.setenv("RANK", "1")  # of several processes the first speaks
    assert interrupt(monkeypatch, where, *arguments) == ""


def test_every_command_that_is_named_exists() -> None:
    root = typer.main.get_command(app)
    for name in _KEPT:
        command = root
        for word in name.split():
            assert word in command.commands, name  # type: ignore[attr-defined]
            command = command.commands[word]  # type: ignore[attr-defined]


def test_a_reader_that_has_enough_is_no_error() -> None:
    """As `polyglance ... | head` does."""
    code = "from polyglance.cli import main; import sys; sys.argv[1:] = ['weights', 'list']; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() != 2
    process.stderr.close()
