from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.colour_encoder import write_clip
from polyglance.cli import app, main
from polyglance.demo.photographs import FOLDER
from polyglance.encoders import load
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library

NAMES = ("cow", "duck", "horse", "sushi", "windmill")


@pytest.fixture(scope="module", autouse=True)
def _one_model() -> Iterator[None]:
    """Load the model once for all commands."""
    encoder = load(threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("polyglance.search.model_info.load", lambda *names, **options: encoder)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library of five photographs."""
    path = tmp_path_factory.mktemp("search") / "my.polyglance"
    with Library(path) as library:
        library.add(*(FOLDER / f"{name}.webp" for name in NAMES), thumbnails=True)
    return str(path)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["search", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def hits(place: str, *arguments: str) -> list[str]:
    return [Path(hit["path"]).stem for hit in json.loads(run("-l", place, "--json", *arguments))]


def test_an_empty_library_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "empty.polyglance")
    with Library(path) as library:
        library.add(tmp_path)
    done = CliRunner().invoke(app, ["search", "a cow", "-l", path])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "the library is empty: `polyglance index FOLDER` adds" in done.stderr


def test_hits_as_json(place: str) -> None:
    [first] = json.loads(run("eine Kuh", "-l", place, "-k", "1", "--json"))
    assert Path(first["path"]) == FOLDER / "cow.webp"
    assert set(first) >= {
        "path", "score", "kind", "span", "taken", "width", "height", "seconds",
    }  # fmt: skip


def test_hits_as_a_table(place: str) -> None:
    lines = run("a cow", "-l", place, "-k", "2").splitlines()
    assert lines[0].split() == ["match", "file"]
    assert re.fullmatch(r" +\d+%  .*cow\.webp", lines[1])
    assert lines[2] == "less certain:"
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (("an animal", "-cow"), "cow"),
        (("-cow", "an animal", "-k", "3"), "cow"),
        (("an animal", "-cow", "-Gänse", "-k3"), "cow, Gänse"),
        (("an animal", "--", "-cow"), "cow"),
        (("-cow",), "cow"),
    ],
)
def test_a_word_after_a_dash_is_excluded(
    place: str, arguments: tuple[str, ...], without: str
) -> None:
    done = CliRunner().invoke(app, ["search", "--library", place, "--no-correct", *arguments])
    assert done.exit_code == 0, done.stderr
    assert f"without: {without} (--literal" in done.stderr


def test_options_with_a_dash_stay_options(place: str) -> None:
    assert "cow" in hits(place, "a cow", "-k1")
    for word in ("--cow", "-7"):
        assert CliRunner().invoke(app, ["search", "-l", place, "a", word]).exit_code == 2
    of_that_name = CliRunner().invoke(app, ["search", "a cow", "-later"])
    assert "ater: there is no library here" in str(of_that_name.exception)
    assert hits(place, "an animal", "--exclude", "-cow")  # an option's value


def test_hits_of_a_date_alone_show_their_dates(place: str) -> None:
    heading, *lines = run("photos since 1990", "-l", place, "-k", "3").splitlines()
    assert heading.split() == ["taken", "file"]
    dates = [line.split()[0] for line in lines]
    assert len(dates) == 3
    assert dates == sorted(map(str, map(date.fromisoformat, dates)), reverse=True)
    found = json.loads(run("since 1990", "-l", place, "--json"))
    assert {hit["score"] for hit in found} == {None}
    judged = json.loads(
        run("photos since 1990", "--exclude", "a cow", "-l", place, "--json")
    )  # the words that are left are judged as ever
    assert all(hit["score"] is not None and "probability" in hit for hit in judged)


def test_pictures_words_exclusions_and_filters(place: str) -> None:
    duck = str(FOLDER / "duck.webp")
    assert hits(place, "--picture", duck)[0] == "duck"
    assert hits(place, "a cow")[0] == "cow"
    before, after = hits(place, "an animal"), hits(place, "an animal", "--exclude", "a cow")
    assert after.index("cow") > before.index("cow")
    assert hits(place, "an animal", "--exclude-picture", duck)[0] != "duck"
    assert hits(place, "an animal", "--exclude-picture", duck)[-1] == "duck"
    query = ("Ente", "--language", "de", "--translation", "en:duck", "--translation", "fr:canard")
    assert hits(place, *query)[0] == "duck"
    assert hits(place, "a cow", "--folder", duck) == ["duck"]
    assert hits(place, "a cow", "--kind", "clip") == []
    assert hits(place, "a cow", "--until", "1990") == []
    assert len(hits(place, "a cow", "--since", "1990")) == 5


def test_a_date_in_words_is_printed_and_can_be_switched_off(place: str) -> None:
    done = CliRunner().invoke(app, ["search", "a cow in summer 1999", "-l", place])
    assert "date: 1999-06-01 – 1999-08-31 (in summer 1999); --off dates" in done.stderr
    assert "nothing found" in done.stderr
    assert len(hits(place, "a cow in summer 1999", "--off", "dates", "--stack")) == 5
    [line] = [line for line in run("cow", "-l", place).splitlines() if "cow.webp" in line]
    assert "[name: cow]" in line
    assert "[name" not in run("cow", "-l", place, "--off", "names")


def test_a_query_with_its_translations(place: str, tmp_path: Path) -> None:
    for code, (word, meaning) in {"de": ("mill", "Mühle"), "fr": ("mill", "moulin")}.items():
        (tmp_path / f"en-{code}.txt").write_text(f"{word}\t{meaning}\n", encoding="utf-8")
    query = ("mill", "--language", "en", "--translate", "de,fr", "--translator", "words",
             "--dictionaries", str(tmp_path))  # fmt: skip
    done = CliRunner().invoke(app, ["search", "-l", place, "--json", *query])
    assert done.stderr == "en: mill\nde: Mühle\nfr: moulin\n"
    explicit = (
        "mill",
        "--language",
        "en",
        "--translation",
        "de:Mühle",
        "--translation",
        "fr:moulin",
    )
    assert done.stdout == run("-l", place, "--json", *explicit)
    assert json.loads(done.stdout) != json.loads(run("mill", "-l", place, "--json"))


def test_hits_as_an_html_page(place: str, tmp_path: Path) -> None:
    run("بقرة", "-l", place, "-k", "3", "--html", str(tmp_path / "s.html"), "--language", "ar")
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert page.count("<img") == 3
    assert 'dir="rtl"' in page
    assert "cow.webp" in page


def test_a_page_links_to_the_files_and_replaces_only_pages(place: str, tmp_path: Path) -> None:
    page = tmp_path / "s.html"
    for _ in range(2):  # its own page may be replaced
        run("a cow", "-l", place, "-k", "1", "--html", str(page))
    text = page.read_text(encoding="utf-8")
    cow = FOLDER / "cow.webp"
    assert text.count(f'<a href="{cow.as_uri()}" title="{cow} · ') == 2  # picture and name
    assert ">photos/cow.webp</a>" in text
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    for name, message in (("s.pdf", "ends in .html"), ("mine.html", "is no page of Polyglance")):
        done = CliRunner().invoke(app, ["search", "a", "-l", place, "--html", str(tmp_path / name)])
        assert isinstance(done.exception, PolyglanceError)
        assert message in str(done.exception)
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    assert not (tmp_path / "s.pdf").exists()


def test_segments_of_a_clip(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.mp4", [("red", 4), ("white", 4)])
    place = str(tmp_path / "clips.polyglance")
    with Library(place) as library:
        library.add(tmp_path / "clip.mp4")
    assert len(hits(place, "a red wall")) == 1
    assert len(hits(place, "a red wall", "--all-segments")) > 1
    line = run("a red wall", "-l", place, "--plain").splitlines()[-1]
    assert re.search(r"\d:\d\d–\d:\d\d .*clip\.mp4$", line)  # the path is last


def test_typing_mistakes_exclusions_and_minimum_scores(place: str) -> None:
    def notes(*arguments: str) -> str:
        return CliRunner().invoke(app, ["search", *arguments, "-l", place]).stderr

    assert "searched for: a cow on the beach" in notes("a cow on the baech")
    assert "searched for" not in notes("a cow on the baech", "--no-correct")
    assert "without: cow" in notes("animals -cow")
    assert "without" not in notes("animals -cow", "--literal")
    assert hits(place, "a duck", "--min-score", "1") == []
    assert len(hits(place, "a duck", "--min-score", "-1")) == 5
    assert "a lower --min-score" in notes("a duck", "--min-score", "1")
    duck = FOLDER / "duck.webp"
    plain = ("a horse", "--off", "names")
    assert hits(place, *plain, "--picture", f"{duck}^5")[0] == "duck"
    assert hits(place, *plain, "--picture", f"{duck}^0.1")[0] == "horse"


def test_words_need_no_quotes(place: str) -> None:
    assert hits(place, "a", "white", "duck") == hits(place, "a white duck")


def test_paths_for_pipes(place: str) -> None:
    paths = [str(FOLDER / f"{name}.webp") for name in hits(place, "a duck", "-k", "2")]
    assert run("a duck", "-l", place, "-k", "2", "--paths") == "".join(f"{p}\n" for p in paths)
    assert run("a duck", "-l", place, "-k", "2", "-0") == "".join(f"{p}\0" for p in paths)
    assert run("a duck", "-l", place, "--paths", "--until", "1990") == ""


def test_unknown_folders_are_named(place: str) -> None:
    query = ["search", "a cow", "-l", place, "--folder", "nowhere"]
    done = CliRunner().invoke(app, query)
    assert "nowhere: nothing of this is in the library" in str(done.exception)
    done = CliRunner().invoke(app, [*query, "--folder", str(FOLDER), "--paths"])
    assert done.exit_code == 0
    assert done.stderr == "nowhere: nothing of this is in the library\n"
    assert done.stdout.count("\n") == 5


def test_lines_end_in_the_whole_path_as_a_link_where_that_works(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.chdir("/")
    path = FOLDER / "cow.webp"
    name = str(path.relative_to("/"))
    assert run("a cow", "-l", place, "-k", "1").splitlines()[1].endswith(f"  {name}")
    monkeypatch.setenv("FORCE_HYPERLINK", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    line = run("a cow", "-l", place, "-k", "1", "--plain").splitlines()[1]
    assert f";{path.as_uri()}\x1b\\{name}\x1b]8;;" in line


def test_a_terminal_gets_pictures(place: str) -> None:
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "50"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "polyglance", "search", "a cow", "-l", place, "-k", "2"],
        stdout=terminal, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    os.close(terminal)
    output = b""
    while True:
        try:
            block = os.read(reader, 65536)
        except OSError:
            break
        if not block:
            break
        output += block
    os.close(reader)
    assert process.communicate()[1] == b""
    assert process.returncode == 0
    text = output.decode()
    assert "▀" in text
    assert "a cow" in text
    assert "\x1b[" in text
    last = text.rstrip().splitlines()[-1]
    assert last.startswith("2  ")
    assert "\x1b]8;" in last
    assert ".webp\x1b]8;;" in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "the query is empty"), (["x", "--since", "soon"], "write a date as"),
     (["x", "--kind", "film"], "picture or clip"), (["x", "--translation", "de:y"], "--language"),
     (["x", "--translation", "y", "--language", "en"], "each language once"),
     (["x", "--translate", "de"], "its --language"),
     (["x", "--translate", "de", "--language", "en"], "--translate needs --translator"),
     (["x", "--translate", "de", "--language", "en", "--translation", "fr:y"], "give one of them"),
     (["x", "--language", "klingon"], "'klingon' is no language: give its name or a code"),
     (["x", "--literal", "--language", ""], "'' is no language"),
     (["x", "--json", "--paths"], "exclude each other"),
     (["x", "--candidates", "5"], "add --rerank or --cross-encoder"),
     (["--picture", "/nowhere.png"], "cannot be read")],
)  # fmt: skip
def test_errors_are_one_sentence(
    place: str, arguments: list[str], message: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["polyglance", "search", "-l", place, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_library_named_by_the_environment(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYGLANCE_LIBRARY", place)
    assert "duck.webp" in run("a duck", "-k", "1")
