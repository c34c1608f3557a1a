"""No message advises what would lose data, and what is no library is left as it is."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

import polyglance
from helpers.colour_encoder import write_image
from polyglance.cli import app
from polyglance.errors import PolyglanceError

_ADVICE = re.compile(
    r'"[^"\n]*\b(?:delete|remove|erase) (?:it|them|the (?:file|folder)|this one)\b[^"\n]*"'
)


def test_no_message_advises_to_delete_files() -> None:
    found = [
        f"{path.name}: {advice}"
        for path in Path(polyglance.__file__).parent.rglob("*.py")
        for advice in _ADVICE.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def _write_image(path: Path) -> None:
    write_image(path.with_suffix(".png"), "red").rename(path)


def _write_text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 400, encoding="utf-8")


def _write_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE diary (day TEXT)")
        connection.execute("INSERT INTO diary VALUES ('2024-07-31')")
    connection.close()


def _write_damaged_database(path: Path) -> None:
    _write_database(path)
    path.write_bytes(b"SQLite format 4\0" + path.read_bytes()[16:])


@pytest.mark.parametrize(
    "write", [_write_image, _write_text, _write_database, _write_damaged_database]
)
def test_what_is_no_library_is_left_as_it_is(tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
    place = tmp_path / "mine"
    write(place)
    write_image(tmp_path / "photos" / "a.png", "blue")
    content = place.read_bytes()
    for arguments in (
        ["index", str(tmp_path / "photos")], ["index"], ["search", "a dog"], ["serve"],
        ["classify", str(tmp_path / "photos"), "a dog"],
        *(["library", name] for name in ("info", "verify", "repair", "problems", "trust")),
        ["library", "backup", str(tmp_path / "backup")],
        ["library", "export", str(tmp_path / "vectors.npy")],
        ["library", "remove", str(tmp_path / "photos")],
    ):  # fmt: skip
        done = CliRunner().invoke(app, [*arguments, "-l", str(place)])
        assert isinstance(done.exception, PolyglanceError), arguments
        message = str(done.exception)
        assert str(place) in message
        assert not re.search(r"delete|remove|overwrite", message), message
        assert place.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "photos"]


def test_a_folder_is_no_library(tmp_path: Path) -> None:
    write_image(tmp_path / "photos" / "a.png", "blue")
    for arguments in (["search", "x"], ["index", str(tmp_path / "photos")], ["library", "repair"]):
        done = CliRunner().invoke(app, [*arguments, "-l", str(tmp_path / "photos")])
        assert isinstance(done.exception, PolyglanceError), done.exception
        assert "is a folder, and a library is a file" in str(done.exception)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.png"]
