from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.demo.photographs import FOLDER
from polyglance.encoders import load
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library

NAMES = ("tabby-cat", "german-shepherd", "horse", "kitchen")
LABELS = "猫、犬、馬"


@pytest.fixture(scope="module", autouse=True)
def _one_model() -> Iterator[None]:
    """Load the model, and encode the same texts, once for all commands."""
    encoder = load(threads=1)
    encode = cache(encoder.encode_texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "encode_texts", lambda texts, language=None: encode(tuple(texts)))
        patch.setattr("polyglance.search.model_info.load", lambda *names, **options: encoder)
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four photographs."""
    folder = tmp_path_factory.mktemp("classify") / "photos"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.webp").write_bytes((FOLDER / f"{name}.webp").read_bytes())
    return folder


@pytest.fixture(scope="module")
def place(photos: Path) -> str:
    """A library of it."""
    with Library(photos.parent / "my.polyglance") as library:
        library.add(photos)
    return str(photos.parent / "my.polyglance")


def run(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["classify", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_lines_by_label_that_end_in_the_path(photos: Path, place: str) -> None:
    output, summary = run(str(photos), LABELS, "-l", place)
    rows = [line.split(maxsplit=1)[1] for line in output.splitlines()]
    assert rows == [
        f"猫  {photos}/tabby-cat.webp",
        f"犬  {photos}/german-shepherd.webp",
        f"馬  {photos}/horse.webp",
        f"none of these  {photos}/kitchen.webp",
    ]
    assert summary == "4 files: 1 猫, 1 犬, 1 馬, 1 none of these\n"


def test_json_and_csv(photos: Path, place: str) -> None:
    results = json.loads(run(str(photos), LABELS, "-l", place, "--json")[0])
    assert {Path(one["path"]).stem: one["label"] for one in results} == dict(
        zip(NAMES, ("猫", "犬", "馬", None), strict=True)
    )
    rows = list(csv.DictReader(io.StringIO(run(str(photos), LABELS, "-l", place, "--csv")[0])))
    for row, one in zip(rows, results, strict=True):
        assert (row["path"], row["label"]) == (one["path"], one["label"] or "")
        assert float(row["猫"]) == one["probabilities"]["猫"]


def test_a_folder_that_is_in_no_library_is_encoded_for_this_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGLANCE_LIBRARY", str(tmp_path / "none.polyglance"))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.webp").write_bytes((FOLDER / "tabby-cat.webp").read_bytes())
    (tmp_path / "one" / "torn.jpg").write_bytes(b"x")
    output, notes = run(str(tmp_path / "one"), "Katze", "--language", "de")
    assert output.split()[1:] == ["Katze", f"{tmp_path}/one/a.webp"]
    assert "torn.jpg" in notes
    assert not (tmp_path / "none.polyglance").exists()
    (tmp_path / "one" / "a.webp").unlink()
    for number in range(4):
        (tmp_path / "one" / f"{number}.jpg").write_bytes(b"x")
    done = CliRunner().invoke(app, ["classify", str(tmp_path / "one"), "Katze"])
    assert "no picture or clip there can be read" in str(done.exception)
    assert "skipped 5 files" in done.stderr
    assert "library problems" not in done.stderr


def test_copies_links_and_limits(photos: Path, place: str, tmp_path: Path) -> None:
    shared = (str(photos), LABELS, "-l", place)
    copies = ("--copy-to", str(tmp_path / "copies"))
    assert "3 copied" in run(*shared, *copies)[1]
    assert "0 copied, 3 were there already" in run(*shared, *copies)[1]
    assert (tmp_path / "copies" / "犬" / "german-shepherd.webp").is_file()
    assert "3 linked" in run(*shared, "--link-to", str(tmp_path / "links"))[1]
    assert (tmp_path / "links" / "馬" / "horse.webp").is_symlink()
    assert "4 none of these" in run(*shared, "--min-probability", "1")[1]
    drawing = json.loads(run(*shared, "--template", "a drawing of {}", "--json")[0])
    assert drawing != json.loads(run(*shared, "--json")[0])
    assert len(list(photos.iterdir())) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([","], "at least one label"),
        (["a", "--json", "--csv"], "exclude each other"),
        (["a", "--copy-to", "x", "--link-to", "y"], "exclude each other"),
        (["a", "--template", "x"], "where the label belongs"),
        (["a", "--model", "x"], "leave out --library"),
        (["a", "--copy-to", "PHOTOS/sorted"], "give a folder elsewhere"),
    ],
)
def test_errors(photos: Path, place: str, arguments: list[str], message: str) -> None:
    given = [argument.replace("PHOTOS", str(photos)) for argument in arguments]
    done = CliRunner().invoke(app, ["classify", str(photos), *given, "-l", place])
    assert isinstance(done.exception, PolyglanceError)
    assert message in str(done.exception)


def test_unknown_folders_are_named(place: str, tmp_path: Path) -> None:
    for folder, message in ((tmp_path / "x", "no such file"), (tmp_path, "nothing of this is in")):
        done = CliRunner().invoke(app, ["classify", str(folder), "a", "-l", place])
        assert f"{folder}: {message}" in str(done.exception)
