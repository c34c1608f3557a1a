from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.colour_encoder import ColourEncoder, write_random_images
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a library of three pictures in ``one`` and two in ``two``."""
    write_random_images(tmp_path / "one", 3)
    write_random_images(tmp_path / "two", 2, seed=1)
    with Library(tmp_path / "my.polyglance", model=ColourEncoder()) as library:
        library.add(tmp_path / "one", tmp_path / "two", thumbnails=True)
    return tmp_path


def run(folder: Path, *arguments: str, status: int = 0) -> str:
    library = str(folder / "my.polyglance")
    done = CliRunner().invoke(app, ["library", *arguments, "-l", library], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.output


def test_info(folder: Path) -> None:
    output = run(folder, "info")
    for expected in (
        "my.polyglance: 5 pictures and 0 clips", "5, 12 dimensions", "colours (fingerpr)",
        "5 thumbnails",
        f"folder      {folder / 'one'}", f"folder      {folder / 'two'}",
    ):  # fmt: skip
        assert expected in output
    assert "excluded" not in output


def test_remove_and_verify(folder: Path) -> None:
    # The encoder was given as an object, so that the command cannot load it.
    output = run(folder, "verify", "--files", status=1)
    assert output.startswith("vectors are not compared with the files")
    assert "1 problem" in output
    (folder / "two" / "0000.png").write_bytes(b"another")
    assert "no damage" in run(folder, "verify")
    assert "two/0000.png: the file changed after it was indexed" in run(
        folder, "verify", "--files", status=1
    )
    assert "2 removed; 3 in all" in run(folder, "remove", str(folder / "two"))
    assert "1 removed; 2 in all" in run(folder, "remove", str(folder / "one" / "0001.png"))
    assert f"excluded    {folder / 'one' / '0001.png'}" in run(folder, "info")
    raw = sqlite3.connect(folder / "my.polyglance")
    raw.execute("UPDATE vectors SET vector = zeroblob(24)")
    raw.commit()
    raw.close()
    assert "2 problems" in run(folder, "verify", status=1)


def test_merge(folder: Path) -> None:
    write_random_images(folder / "three", 4, seed=2)
    with Library(folder / "other.polyglance", model=ColourEncoder()) as other:
        other.add(folder / "three")
    output = run(folder, "merge", str(folder / "other.polyglance"))
    assert "other.polyglance: 4 added" in output
    assert "9 in all" in output


def test_backup_restore_and_trust(folder: Path) -> None:
    backup = str(folder / "backup")
    assert "pictures and clips" in run(folder, "backup", backup)
    assert "the library of before is" in run(folder, "restore", backup, "--overwrite")
    assert "no damage" in run(folder, "verify")
    assert run(folder, "repair") == "no damage\n"
    assert f"confirmed   {folder}" in run(folder, "trust", str(folder))
    done = CliRunner().invoke(app, ["library", "backup", backup, "-l", "postgresql://me@server/db"])
    assert isinstance(done.exception, PolyglanceError)
    assert "pg_dump --schema=polyglance" in str(done.exception)


def test_problems(folder: Path) -> None:
    assert run(folder, "problems") == "no problems\n"
    (folder / "two" / "bad\nname.svg").write_text("<svg/>")
    (folder / "one" / "drawing.svg").write_text("<svg/>")
    reason = "SVG files are not supported"
    output = run(folder, "problems")
    assert f"{folder}/two/bad\\nname.svg: {reason}" in output
    assert output.endswith("2 problems\n")
    [found] = json.loads(run(folder, "problems", str(folder / "one"), "--json"))
    assert found["path"] == str(folder / "one" / "drawing.svg")
    assert found["reason"].startswith(reason)
    paths = run(folder, "problems", "-0").split("\0")
    assert paths == [f"{folder}/one/drawing.svg", f"{folder}/two/bad\nname.svg", ""]
    assert run(folder, "problems", str(folder / "one"), "--paths") == f"{paths[0]}\n"
    done = CliRunner().invoke(
        app, ["library", "problems", "/nowhere", "-l", str(folder / "my.polyglance")]
    )
    assert "/nowhere: nothing of this is in the library" in str(done.exception)


def test_export(folder: Path) -> None:
    output = run(folder, "export", str(folder / "vectors.npy"))
    assert f"{folder / 'vectors.npy'} and {folder / 'vectors.jsonl'}: 5 vectors of 12" in output
    assert np.load(folder / "vectors.npy").shape == (5, 12)
    again = ["library", "export", str(folder / "vectors.npy"), "-l", str(folder / "my.polyglance")]
    assert "exists" in str(CliRunner().invoke(app, again).exception)
    run(folder, "export", str(folder / "vectors.npy"), "--overwrite")
