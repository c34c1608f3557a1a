"""Language detection, truncation and errors of ``polyglance ask``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from helpers.tiny_cross_encoders import save_vqa_model, write_parts
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.text.lexicon import Lexicon

QUESTIONS = {
    "en": ["what colour is the circle", "how many squares are there"],
    "de": ["welche Farbe hat der Kreis", "wie viele Quadrate gibt es"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    parts = write_parts(folder, [text for texts in QUESTIONS.values() for text in texts])
    write_image(folder / "red.png", (220, 30, 30), (64, 64))
    folder_of_model = save_vqa_model(folder / "model", parts)
    Lexicon.from_texts(QUESTIONS).save(folder_of_model)
    return folder_of_model


def ask(model: Path, question: str, *options: str) -> Result:
    picture = model.parent / "red.png"
    done = CliRunner().invoke(app, ["ask", str(picture), question, "--model", str(model), *options])
    if done.exception is not None:
        raise done.exception
    return done


@pytest.mark.parametrize("question", ["De quelle couleur est le cercle ?", "วงกลมสีอะไร"])
def test_uncertain_language_is_reported(model: Path, question: str) -> None:
    done = ask(model, question, "--json")
    (language,) = {answer["language"] for answer in json.loads(done.stdout)}
    name = {"en": "English", "de": "German"}[language]
    assert done.stderr == (
        f"the question was taken for {name}, but may be in none of the model's languages (en, de):"
        " set --language\n"
    )
    assert ask(model, question, "--language", "de").stderr == ""


@pytest.mark.parametrize(
    "question", ["What colour is the aardvark?", "Welche Farbe hat das Quadrat?", "How many?"]
)
def test_known_language_needs_no_warning(model: Path, question: str) -> None:
    assert ask(model, question).stderr == ""


def test_without_a_lexicon_there_is_no_warning(model: Path) -> None:
    words = (model / "lexicon.json").read_bytes()
    (model / "lexicon.json").unlink()
    try:
        assert ask(model, "De quelle couleur est le cercle ?").stderr == ""
    finally:
        (model / "lexicon.json").write_bytes(words)


def test_long_questions_are_reported_as_truncated(model: Path) -> None:
    done = ask(model, "what colour is the circle " * 12, "--json")
    start = "the model reads at most 30 tokens: 'what colour is the circle what colour i…' was"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{start} cut after '")
    assert len(json.loads(done.stdout)) == 3


@pytest.mark.parametrize("question", ["?", " ", "¿ ... ?"])
def test_question_without_words_is_refused(model: Path, question: str) -> None:
    with pytest.raises(PolyglanceError) as caught:
        ask(model, question, "--language", "en")
    assert str(caught.value) == (f"the question {question!r} has no words: ask one in en, de")
