"""Commands that use the default model's reader: search --rerank, ask and explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from helpers.small_reader import small_reader
from polyglance.cli import app
from polyglance.encoders import model_folder
from polyglance.encoders.model_folder import DEFAULT_MODEL
from polyglance.encoders.reader import Reader
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library

COLOURS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    small_reader().export(folder / DEFAULT_MODEL)
    return folder


@pytest.fixture
def shipped(models: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a small model with a reader the default one."""
    monkeypatch.setattr(model_folder, "_SHIPPED", models)
    return models / DEFAULT_MODEL


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour in COLOURS.items():
        write_image(folder / f"{name}.png", colour, (64, 64))
    return folder


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None:
        raise done.exception
    return done


def test_search_reranks_by_the_reader(shipped: Path, photos: Path, tmp_path: Path) -> None:
    place = tmp_path / "library.db"
    run("index", photos, "--library", place, "-q")
    hits = json.loads(run("search", "a dog", "--library", place, "--rerank", "--json").stdout)
    reader = Reader.open(shipped)
    encoded = reader.encode_images([hit["path"] for hit in hits])
    scores = reader.score("a dog", encoded)
    assert [hit["rerank_score"] for hit in hits] == pytest.approx(scores.tolist(), abs=2e-3)
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    plain = json.loads(run("search", "a dog", "--library", place, "--json").stdout)
    assert "rerank_score" not in plain[0]


def test_ask_and_explain_need_no_model(shipped: Path, photos: Path, tmp_path: Path) -> None:
    picture = photos / "red.png"
    answers = json.loads(run("ask", picture, "Is this a dog?", "--json").stdout)
    expected = Reader.open(shipped).ask(picture, "Is this a dog?")
    assert [answer["text"] for answer in answers] == [answer.text for answer in expected]
    out = tmp_path / "attribution"
    done = run("explain", picture, "a dog on grass", "--out", out)
    assert str(out / "attribution.html") in done.stdout
    page = (out / "attribution.html").read_text(encoding="utf-8")
    assert "(occlusion)" in page
    assert "grass" in page


def test_a_model_is_given_by_its_folder(models: Path, photos: Path) -> None:
    given = models / DEFAULT_MODEL
    answers = json.loads(
        run("ask", photos / "red.png", "Is this a dog?", "--model", given, "--json", "-k", 1).stdout
    )
    assert len(answers) == 1
    without = models / f"{DEFAULT_MODEL}-dual"
    with pytest.raises(PolyglanceError, match="small has no reader"):
        run("ask", photos / "red.png", "Is this a dog?", "--model", without)


def test_a_long_question_is_cut_and_an_unknown_language_named(shipped: Path, photos: Path) -> None:
    done = run("ask", photos / "red.png", "Is this a dog " * 20)
    assert "the model reads at most 20 tokens" in done.stderr
    assert "was cut after" in done.stderr
    done = run("ask", photos / "red.png", "welche Farbe hat der Kreis")
    assert "may be in none of the model's languages (en, vi)" in done.stderr


def test_options_of_other_models_are_refused(shipped: Path, photos: Path) -> None:
    with pytest.raises(PolyglanceError, match="a reader explains by occlusion"):
        run("explain", photos / "red.png", "a dog", "--by", "attention")
    with pytest.raises(PolyglanceError, match="a reader brings its own image backbone"):
        run("explain", photos / "red.png", "a dog", "--backbone", "x")
    with pytest.raises(PolyglanceError, match="only a model with a reader explains by occlusion"):
        run("explain", photos / "red.png", "a dog", "--by", "occlusion", "--model", photos)


def test_a_library_of_another_model_uses_the_default_reader(
    shipped: Path, models: Path, photos: Path, tmp_path: Path
) -> None:
    without = models / f"{DEFAULT_MODEL}-dual"
    with Library(tmp_path / "library.db", model=without, reranker=True) as library:
        library.add(photos)
        found = library.reader()
        assert found is not None
        assert found.folder.path == shipped
        assert all(hit.rerank_score is not None for hit in library.search("a dog"))


def test_the_server_explains_and_answers_with_the_reader(
    shipped: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    from polyglance.serve import server
    from polyglance.serve.app import create_app

    place = tmp_path / "library.db"
    run("index", photos, "--library", place, "-q")
    asked: dict[str, object] = {}

    def serve(library: Library, **options: object) -> None:
        asked.update(options)
        names = ("explainer", "answerer")
        own = {name: options[name] for name in names}
        with TestClient(create_app(library, **own), base_url="http://127.0.0.1") as client:  # type: ignore[arg-type]
            hit = client.get("/api/search", params={"q": "a dog"}).json()["hits"][0]
            asked["reranked"] = library.search("a dog")[0].rerank_score is not None
            address = f"/api/items/{hit['id']}"
            asked["why"] = client.get(f"{address}/why", params={"q": "a dog"}).json()
            asked["answers"] = client.get(f"{address}/answers", params={"q": "a dog?"}).json()

    monkeypatch.setattr(server, "serve", serve)
    run("serve", "--library", place)
    assert isinstance(asked["explainer"], Reader)
    assert asked["answerer"] is asked["explainer"]
    assert not asked["reranked"]
    assert [one["word"] for one in asked["why"]["words"]] == ["a", "dog"]  # type: ignore[index]
    assert len(asked["answers"]["answers"]) == 3  # type: ignore[index]
    run("serve", "--library", place, "--rerank")
    assert asked["reranked"]
