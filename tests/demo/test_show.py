"""The demo with an oracle model; tests/test_bare_install.py runs it with the included one."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.demo.photographs import photographs
from polyglance.demo.queries import QUERIES, UNCAPTIONED
from polyglance.demo.show import NUM_HITS, count_relevant, run_demo
from polyglance.encoders import Picture
from polyglance.errors import PolyglanceError
from polyglance.languages import get_language
from polyglance.search.render.results import QueryResult, RenderedHit
from polyglance.vision.pictures import read_picture

NAMES = [photograph.path.stem for photograph in photographs()]


def pixels(picture: Picture) -> bytes:
    return np.asarray(picture).tobytes()


@cache
def photograph_indices() -> dict[bytes, int]:
    return {pixels(read_picture(p.path)): index for index, p in enumerate(photographs())}


class Oracle:
    """Gives each photograph its own axis, and a demo query the axes of its relevant photographs.

    Everything else gets the last axis, that of the last photograph.
    """

    name = "oracle"
    width = len(NAMES)
    fingerprint = "oracle"

    def __init__(self, unknown_language: str = "") -> None:
        self.unknown_language = unknown_language

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        rows = [photograph_indices().get(pixels(picture), self.width - 1) for picture in pictures]
        return np.eye(self.width, dtype=np.float32)[rows]

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        relevant = {
            query.text: query.relevant
            for query in QUERIES
            if query.language != self.unknown_language
        }
        rows = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[[NAMES.index(name) for name in relevant.get(text, NAMES[-1:])]] = 1
        return rows


@pytest.fixture
def console() -> Console:
    return Console(width=100, file=io.StringIO(), record=True)


def test_queries_are_in_many_languages_and_have_relevant_photographs() -> None:
    languages = [query.language for query in QUERIES]
    assert len(set(languages)) == len(languages) >= 10
    assert {"en", "de", "fr", "cs", "pt", "zh", "ar", *UNCAPTIONED} <= set(languages)
    for query in QUERIES:
        assert query.relevant
        assert query.relevant <= set(NAMES)
        assert len(query.relevant) <= NUM_HITS
        assert query.language
        assert get_language(query.language).english_name != query.language
        assert bool(query.english) == (query.language != "en")


def test_the_whole_demo(tmp_path: Path, console: Console) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the demo must not print warnings
        answers = run_demo(lambda: Oracle(unknown_language="tr"), tmp_path / "out", console)
    assert [answer.query for answer in answers] == [query.text for query in QUERIES]
    assert count_relevant(answers) == (len(QUERIES) - 1, len(QUERIES) - 1)
    output = " ".join(console.export_text().split())
    for expected in ("oracle was loaded in", "ms a picture", "Korean", "a dog is standing"):
        assert expected in output
    assert f"for {len(QUERIES) - 1} of the {len(QUERIES)} queries" in output
    assert f"captions in training, for {len(UNCAPTIONED) - 1} and {len(UNCAPTIONED) - 1}." in output
    page = (tmp_path / "out" / "sheet.html").read_text(encoding="utf-8")
    assert page.count("<img") == NUM_HITS * len(QUERIES)
    assert f"{len(NAMES)} photographs, {len(QUERIES)} languages" in page
    assert "Eatcha, CC-BY-SA-4.0" in page  # the credit of the horse


def test_own_queries_are_not_judged(tmp_path: Path, console: Console) -> None:
    [answer] = run_demo(Oracle, tmp_path, console, texts=["mitt eget ord"])
    assert (answer.query, answer.language) == ("mitt eget ord", None)
    assert answer.hits[0].name == photographs()[-1].title
    assert {hit.is_correct for hit in answer.hits} == {None}
    assert "right photograph" not in console.export_text()


def test_own_pictures_and_bad_files(tmp_path: Path, console: Console) -> None:
    album = tmp_path / "album"
    (album / "summer").mkdir(parents=True)
    for name in ("b.png", "summer/[red]a.jpg"):
        Image.new("RGB", (30, 20)).save(album / name)
    (album / "horse.webp").write_bytes(b"no picture")
    answers = run_demo(Oracle, tmp_path / "out", console, folder=album)
    for answer in answers:
        assert {hit.name for hit in answer.hits} == {"b.png", "summer/[red]a.jpg"}
        assert {hit.is_correct for hit in answer.hits} == {None}
    output = console.export_text()
    assert "skipped" in output
    assert "horse.webp" in output.replace("\n", "")
    assert "right photograph" not in output


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no picture or clip"), (b"x", "can be read")]
)
def test_folder_without_readable_pictures_is_an_error(
    tmp_path: Path, console: Console, content: bytes | None, message: str
) -> None:
    if content:
        (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(PolyglanceError, match=message):
        run_demo(Oracle, tmp_path / "out", console, folder=tmp_path)
    assert not (tmp_path / "out").exists()


def test_count_relevant() -> None:
    picture = Image.new("RGB", (1, 1))

    def answer(*right: bool | None) -> QueryResult:
        return QueryResult("?", "en", [RenderedHit(picture, 0.0, "a", is_correct=r) for r in right])

    answers = [answer(True, False), answer(False, True), answer(False, False), answer(None, None)]
    assert count_relevant(answers) == (1, 2)


def test_demo_imports_without_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; import polyglance.demo.show"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_command_passes_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[str | None] = []

    def load(model: str | None) -> Oracle:
        models.append(model)
        return Oracle()

    monkeypatch.setattr("polyglance.encoders.load", load)
    Image.new("RGB", (30, 20)).save(tmp_path / "mine.png")
    words = ["--query", "yksi", "--query", "kaksi"]
    options = ["--photos", str(tmp_path), "--model", "other", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["demo", *words, *options])
    assert done.exit_code == 0, done.output
    assert models == ["other"]
    for expected in ("yksi", "kaksi", "mine.png"):
        assert expected in done.output
    assert "1 photographs, 2 queries" in (tmp_path / "out" / "sheet.html").read_text("utf-8")
