from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.colour_encoder import ColourEncoder, write_random_images
from polyglance.cli import app
from polyglance.search.library import Library


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A library of three pictures of one folder and two of another."""
    write_random_images(tmp_path / "one", 3)
    write_random_images(tmp_path / "two", 2, seed=1)
    with Library(tmp_path / "my.polyglance", model=ColourEncoder()) as library:
        library.add(tmp_path / "one", tmp_path / "two", thumbnails=True)
    return tmp_path


def run(made: Path, *arguments: str, status: int = 0) -> str:
    library = str(made / "my.polyglance")
    done = CliRunner().invoke(app, ["library", *arguments, "-l", library], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.output


def test_info(made: Path) -> None:
    told = run(made, "info")
    for expected in (
        "my.polyglance: 5 pictures and 0 clips", "5, 12 wide", "colours (fingerpr)", "5 thumbnails",
        f"folder      {made / 'one'}", f"folder      {made / 'two'}",
    ):  # fmt: skip
        assert expected in told
    assert "left out" not in told


def test_remove_and_verify(made: Path) -> None:
    assert "no damage" in run(made, "verify", "--files")
    (made / "two" / "0000.png").write_bytes(b"another")
    assert "no damage" in run(made, "verify")
    assert "two/0000.png: the file changed after it was indexed" in run(
        made, "verify", "--files", status=1
    )
    assert "2 removed; 3 in all" in run(made, "remove", str(made / "two"))
    assert "1 removed; 2 in all" in run(made, "remove", str(made / "one" / "0001.png"))
    assert f"left out    {made / 'one' / '0001.png'}" in run(made, "info")
    raw = sqlite3.connect(made / "my.polyglance")
    raw.execute("UPDATE vectors SET vector = zeroblob(24)")
    raw.commit()
    raw.close()
    assert "2 damages" in run(made, "verify", status=1)


def test_merge(made: Path) -> None:
    write_random_images(made / "three", 4, seed=2)
    with Library(made / "other.polyglance", model=ColourEncoder()) as other:
        other.add(made / "three")
    told = run(made, "merge", str(made / "other.polyglance"))
    assert "other.polyglance: 4 taken in" in told
    assert "9 in all" in told
