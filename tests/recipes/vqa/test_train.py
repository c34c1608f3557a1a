"""Question answering by the real commands: train, ask, explain."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from helpers.small_detector import package_weights, write_package
from helpers.small_mmp import WIDTH
from helpers.toy_questions import write_question_data
from polyglance.cli import app
from polyglance.cross_encoders.explain import Explainer, split_words
from polyglance.cross_encoders.object_tags import ObjectTagsConfig
from polyglance.cross_encoders.vqa import VQA
from polyglance.data.readers import read_all_records
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.answers import MissingTokenizer
from polyglance.models.projection_heads import (
    ProjectionHeads,
    ProjectionHeadsConfig,
    save_projection_heads,
)
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.data import ImageBackboneConfig
from polyglance.recipes.vqa import evaluation
from polyglance.recipes.vqa.config import AnswerVocabulary, QuestionFile, VQARecipe
from polyglance.recipes.vqa.data import World
from polyglance.recipes.vqa.evaluation import predict
from polyglance.recipes.vqa.train import run as train_vqa
from polyglance.records import Question
from polyglance.text import Encoding, open_tokenizer
from polyglance.training.loop import LoopConfig
from polyglance.weights.ssdlite import convert


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions") / "data"
    write_question_data(folder, {"train": 30, "test": 8})
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A run of few steps by the published recipe and the real command."""
    changes = [
        "towers=null", f"encoder={data / 'encoder'}", f"eyes.backbone={data / 'eyes'}",
        "objects=null", "eyes.size=64", "eyes.views=2", "train=[{manifest: train.jsonl}]",
        "test=[{manifest: test.jsonl}]", "answers.least=1", "held_out=0.1", "batch=16",
        "loop.steps=4", "loop.validate_every=0", "loop.precision=float32",
    ]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    out = data.parent / "run"
    told = invoke("train", "vqa-en-vi", "--data", str(data), "--out", str(out), *options)
    assert "test.en.above_baseline" in told
    return out


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_run_measures_beside_the_baseline_and_leaves_a_model(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert set(report["test"]) == {"en", "de"}
    english = report["test"]["en"]
    kinds = {"of number", "of other", "of yes/no"}
    assert set(english["model"]) == {"accuracy", "bleu", "sentence_bleu", *kinds}
    assert set(english["baseline"]) == {*english["model"], "first_words"}
    difference = english["model"]["accuracy"] - english["baseline"]["accuracy"]
    assert english["above_baseline"] == pytest.approx(difference)
    assert english["baseline"]["accuracy"] > 15  # yes or no alone is half right of a fifth
    names = {path.name for path in (run / "model").iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "eyes"} <= names
    assert "en.baseline" in (run / "model" / "README.md").read_text()


def test_a_model_is_kept_whatever_measuring_comes_to(
    data: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise PolyglanceError("no way to measure")

    monkeypatch.setattr("polyglance.recipes.vqa.train.measure", fails)
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
    (tmp_path / "vqa.yaml").write_text(recipe, encoding="utf-8")
    with pytest.raises(PolyglanceError, match="no way to measure"):
        open_recipe(str(tmp_path / "vqa.yaml")).run(data, tmp_path / "run")
    assert VQA.open(tmp_path / "run").languages == ("de", "en")


def test_what_bleu_lacks_costs_bleu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object) -> None:
        raise MissingTokenizer("BLEU with the tokenizer ja-mecab needs MeCab")

    monkeypatch.setattr(evaluation, "corpus_bleu", without)
    asked = [Question("何色ですか", "ja", ("赤",), "other")]
    assert evaluation.figures(asked, ["赤"]) == {"accuracy": 100.0, "of other": 100.0}


def test_a_picture_is_asked_in_any_trained_language(data: Path, run: Path) -> None:
    picture = str(next((data / "images").rglob("*.png")))
    asked = ("ask", picture, "Welche Farbe hat der Kreis?", "--model", str(run / "model"))
    found: list[dict[str, Any]] = json.loads(
        invoke(*asked, "--language", "de", "-k", "2", "--json")
    )
    assert [set(answer) for answer in found] == [{"text", "language", "probability"}] * 2
    assert {answer["language"] for answer in found} == {"de"}
    assert 1 >= found[0]["probability"] >= found[1]["probability"] >= 0
    assert found[0]["text"] in invoke(*asked, "--language", "de")
    # The same by the run itself, and by the answerer that the command opens.
    direct = VQA.open(run).ask(picture, "Welche Farbe hat der Kreis?", language="de", k=2)
    assert [answer.text for answer in direct] == [answer["text"] for answer in found]


def test_answers_are_in_the_language_of_the_question(data: Path, run: Path) -> None:
    picture = next((data / "images").rglob("*.png"))
    answerer = VQA.open(run)
    for language, question in (
        ("en", "What colour is the circle?"),
        ("de", "Welche Farbe hat der Kreis?"),
        ("en", "How many squares are there?"),
        ("de", "Wie viele Quadrate gibt es?"),
    ):
        told = answerer.ask(picture, question, k=5)
        assert {answer.language for answer in told} == {language}
        assert told == answerer.ask(picture, question, language=language, k=5)
    # A folder without words of questions cannot tell, and answers in whichever language.
    answerer.lexicon = None
    everything = answerer.ask(picture, "Welche Farbe hat der Kreis?", k=1000)
    assert {answer.language for answer in everything} == {"en", "de"}


def test_missing_questions_are_found_before_anything_is_made(data: Path, tmp_path: Path) -> None:
    recipe = replace(
        seeing_recipe(data), towers="polyglance-small", test=(QuestionFile("none.jsonl"),)
    )
    with pytest.raises(DataError, match=r"none.jsonl: there is no such file: name the folder"):
        train_vqa(recipe, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def seeing_recipe(data: Path) -> VQARecipe:
    return VQARecipe(
        encoder=str(data / "encoder"),
        eyes=ImageBackboneConfig(str(data / "image_backbone"), size=64, views=2),
        meeting=str(data / "meeting"),
        objects=ObjectTagsConfig(str(data / "detector"), unsure=0.05),
        train=(QuestionFile("train.jsonl"),),
        test=(QuestionFile("test.jsonl"),),
        answers=AnswerVocabulary(least=1),
        batch=16,
        loop=LoopConfig(steps=3, validate_every=0, precision="float32"),
        longest_text=60,
    )


@pytest.fixture(scope="module")
def seeing_run(data: Path) -> Path:
    """A run that looks for answers in pictures and is told of objects, each by random weights."""
    width = json.loads((data / "encoder" / "config.json").read_text())["hidden_size"]
    torch.manual_seed(0)
    save_projection_heads(
        ProjectionHeads(ProjectionHeadsConfig(WIDTH, width, 1, 4)), data / "meeting"
    )
    (data / "detector").mkdir()
    convert(write_package(data / "detector.tgz", package_weights()), data / "detector")
    train_vqa(seeing_recipe(data), data, data.parent / "seeing")
    return data.parent / "seeing"


def test_a_model_that_sees_objects_and_answers_needs_nothing_beside_it(
    data: Path, seeing_run: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(seeing_run / "model", tmp_path / "moved")
    answerer = VQA.open(moved)
    assert answerer.teller is not None
    assert answerer.model.similarity is not None
    picture = next((data / "images").rglob("*.png"))
    (told,) = answerer.teller.tag([picture])
    text = answerer.encode_question("Why?", picture)
    assert text.ids.tolist() == answerer.tokenizer.encode(f"Why? {told}", max_length=60)
    assert len(text.ids) > len(answerer.tokenizer.encode("Why?"))
    assert answerer.model.similarity.answer_vectors.norm(dim=1).sub(1).abs().max() < 1e-4
    # What counts is how near an answer is next to pictures in general: those trained on.
    files = sorted((data / "images").rglob("*.png"))
    near = torch.cat(
        [answerer.model.similarity(look) for file in files for look in answerer.encode_image(file)]
    )
    assert near.mean().abs() < 0.5
    assert 0.5 < near.std() < 2
    # Words look from where they stand, whatever is told behind them.
    question = "What colour is the circle?"
    looks = Explainer.open(moved).explain(picture, question, language="en", method="attention")
    assert looks.words == ["What", "colour", "is", "the", "circle"]
    untold = Explainer.open(moved)
    untold.teller = None
    other = untold.explain(picture, question, language="en", method="attention")
    assert other.words == looks.words
    assert np.abs(other.heatmaps - looks.heatmaps).max() > 1e-6


def test_questions_are_measured_as_they_are_asked(data: Path, seeing_run: Path) -> None:
    """The same answers from a whole test, packed, and one picture at a time."""
    answerer = VQA.open(seeing_run)
    world = World.open(seeing_recipe(data), data, "cpu")
    assert world.test is not None
    with torch.no_grad():  # after three steps it says the same to all
        answerer.model.similarity_weight.bias.fill_(3.0)
    measured = predict(answerer.model, world.test, world.classes)
    assert len(set(measured)) > 4
    files = [
        data / str(r.image) for r in read_all_records("jsonl", data / "test.jsonl") if r.questions
    ]
    pictures = list(dict.fromkeys(files))
    for number in range(0, len(measured), 7):
        question = world.test.questions[number]
        picture = pictures[world.test.table.record_ids[number]]
        (best,) = answerer.ask(picture, question.text, language=question.language, k=1)
        assert best.text == measured[number]


def test_a_run_goes_on_only_by_the_recipe_it_began_with(data: Path, seeing_run: Path) -> None:
    recipe = seeing_recipe(data)
    assert recipe.objects is not None
    for other in (
        replace(recipe, objects=None),
        replace(recipe, objects=replace(recipe.objects, most=2)),
    ):
        with pytest.raises(PolyglanceError, match="holds a run by another recipe"):
            train_vqa(other, data, seeing_run)
    assert open_recipe(str(seeing_run / "recipe.yaml")).settings == recipe


def test_a_meeting_of_other_towers_is_refused_before_training(
    data: Path, seeing_run: Path, tmp_path: Path
) -> None:
    assert seeing_run.is_dir()  # which has made all the parts
    save_projection_heads(
        ProjectionHeads(ProjectionHeadsConfig(WIDTH, 8, 1, 4)), tmp_path / "narrow"
    )
    with pytest.raises(PolyglanceError, match="a different encoder"):
        train_vqa(replace(seeing_recipe(data), meeting=str(tmp_path / "narrow")), data, tmp_path)


def test_what_cannot_be_asked_is_said_plainly(data: Path, run: Path) -> None:
    picture = str(next((data / "images").rglob("*.png")))
    with pytest.raises(PolyglanceError, match="polyglance train vqa-en-vi --data DATA"):
        invoke("ask", picture, "Why?")
    with pytest.raises(PolyglanceError, match="no answers in 'fr', only in de, en"):
        invoke("ask", picture, "Pourquoi ?", "--model", str(run), "--language", "fr")
    with pytest.raises(PolyglanceError, match="holds no question-answering model"):
        invoke("ask", picture, "Why?", "--model", str(data))
    with pytest.raises(PolyglanceError, match="there is no question"):
        invoke("ask", picture, " ", "--model", str(run))
    with pytest.raises(PolyglanceError, match="no model to look into"):
        invoke("explain", picture, "a dog", "--out", str(data))
    with pytest.raises(PolyglanceError, match="names no questions"):
        VQARecipe(train=())


@pytest.mark.parametrize("by", ["relevance", "attention"])
def test_a_question_is_explained_in_two_languages(
    data: Path, run: Path, tmp_path: Path, by: str
) -> None:
    picture = str(next((data / "images").rglob("*.png")))
    told = invoke(
        "explain", picture, "What colour is the circle?", "--language", "en", "--translation",
        "de:Welche Farbe hat der Kreis?", "--model", str(run), "--by", by, "--out", str(tmp_path),
    )  # fmt: skip
    assert str(tmp_path / "attribution.png") in told
    page = (tmp_path / "attribution.html").read_text(encoding="utf-8")
    assert page.count("<img") == (2 if by == "relevance" else 10)
    assert 'lang="de"' in page


@pytest.fixture(scope="module")
def uc2_run(data: Path) -> Path:
    """A UC2 that was pre-trained for two steps through the same eyes."""
    captions = [
        {"image": line["image"], "captions": {"en": [line["question"]]}}
        for line in map(json.loads, (data / "train.jsonl").read_text().splitlines())
        if line["language"] == "en"
    ]
    (data / "told.jsonl").write_text("\n".join(json.dumps(line) for line in captions) + "\n")
    changes = [
        f"encoder={data / 'encoder'}", f"eyes={{backbone: {data / 'eyes'}, size: 64, views: 1}}",
        "train={manifest: told.jsonl}", "validation=null", "test=null", "adaptation=null",
        "pretraining.mixture={itm: 1, mlm: 1, mrtm: 0, vtlm: 0}", "pretraining.steps=2",
        "pretraining.matching_first=1",
        "pretraining.batch=4", "fine_tuning=null", "reranking=null", "loop.precision=float32",
        "longest_text=30",
    ]  # fmt: skip
    out = data.parent / "uc2"
    open_recipe("uc2-flickr8k", changes).run(data, out)
    return out


def test_words_of_a_pretrained_uc2_look_at_a_picture(data: Path, uc2_run: Path) -> None:
    picture = next((data / "images").rglob("*.png"))
    opened = Explainer.open(uc2_run)
    sentence = "What colour is the circle?"
    by_relevance = opened.explain(picture, sentence, language="en")
    by_attention = opened.explain(picture, sentence, method="attention", layers=[2])
    for looks in (by_relevance, by_attention):
        assert looks.words == ["What", "colour", "is", "the", "circle"]
        assert looks.heatmaps.shape == (5, 2, 2)
        assert (looks.heatmaps >= 0).all()
    assert (by_attention.heatmaps.sum((1, 2)) < 1).all()
    assert by_relevance.heatmaps.max() > 0
    with pytest.raises(PolyglanceError, match="layers from 1 to 2"):
        opened.explain(picture, sentence, method="attention", layers=[3])
    # A stage opens like the run.
    assert Explainer.open(uc2_run / "pretraining").explain(picture, sentence).words[0] == "What"


def test_question_answering_begins_with_a_pretrained_uc2(
    data: Path, uc2_run: Path, tmp_path: Path
) -> None:
    recipe = VQARecipe(
        encoder=str(data / "encoder"),
        eyes=ImageBackboneConfig(str(data / "image_backbone"), size=64, views=1),
        initialise_from=str(uc2_run / "pretraining"),
        train=(QuestionFile("test.jsonl"),),
        held_out=0,
        answers=AnswerVocabulary(least=1),
        loop=LoopConfig(steps=0),
    )
    report = train_vqa(recipe, data, tmp_path)
    assert "test" not in report
    begun = load_file(uc2_run / "pretraining" / "latest" / "model.safetensors")
    model = load_file(tmp_path / "model" / "model.safetensors")
    for name, value in begun.items():
        assert torch.equal(model[f"reader.{name}"], value)


def test_sub_words_are_joined_to_words(data: Path) -> None:
    tokenizer = open_tokenizer(data / "encoder")
    sentence = "  Welche Farbe hat der Kreis, bitte ?"
    encoding = tokenizer.encode_with_spans(sentence)
    words = split_words(sentence, encoding)
    assert [word for word, _ in words] == ["Welche", "Farbe", "hat", "der", "Kreis", "bitte"]
    places = [place for _, some in words for place in some]
    assert places == sorted(set(places))
    assert 0 not in places
    assert len(encoding.ids) - 1 not in places
    assert len(split_words(sentence, encoding, spaces=False)) == len(places)


def test_letters_without_spaces_between_words_are_cut_at_sub_words() -> None:
    sentence = "两只狗 run"
    spans = [(0, 0), (0, 1), (0, 2), (2, 3), (3, 5), (5, 7), (0, 0)]  # the first is a space
    words = split_words(sentence, Encoding(list(range(7)), [], spans))
    assert words == [("两只", [1, 2]), ("狗", [3]), ("run", [4, 5])]


def test_a_space_that_is_a_sub_word_of_its_own_repeats_no_letter() -> None:
    spans = [(0, 0), (0, 1), (2, 3), (2, 3), (3, 7), (0, 0)]
    words = split_words("a horse", Encoding(list(range(6)), [], spans))
    assert words == [("a", [1]), ("horse", [2, 3, 4])]
