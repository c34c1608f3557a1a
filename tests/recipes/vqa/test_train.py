"""Question answering: train, ask and explain, also from the command line."""

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
from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.object_tags import ObjectTagsConfig
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.cross_encoders.vqa import VQA
from polyglance.data.readers import read_all_records
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.bleu import MissingTokenizerError
from polyglance.models.projection_heads import (
    ProjectionHeads,
    ProjectionHeadsConfig,
    save_projection_heads,
)
from polyglance.recipes import open_recipe
from polyglance.recipes.vqa import evaluation
from polyglance.recipes.vqa.config import AnswerConfig, QuestionFile, VQARecipe
from polyglance.recipes.vqa.data import load_data
from polyglance.recipes.vqa.evaluation import predict
from polyglance.recipes.vqa.train import train
from polyglance.records import Question
from polyglance.training.loop import LoopConfig
from polyglance.weights.ssdlite import convert


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions") / "data"
    write_question_data(folder, {"train": 30, "test": 8})
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """Train the included recipe for a few steps from the command line."""
    changes = [
        "init_from_dual_encoder=null", f"encoder={data / 'encoder'}",
        f"image_backbone.backbone={data / 'image_backbone'}", "object_tags=null",
        "image_backbone.size=64", "image_backbone.views=2", "train=[{manifest: train.jsonl}]",
        "test=[{manifest: test.jsonl}]", "answers.min_score=1", "held_out=0.1", "batch=16",
        "loop.steps=4", "loop.validate_every=0", "loop.precision=float32",
    ]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    out = data.parent / "run"
    output = invoke("train", "vqa-en-vi", "--data", str(data), "--out", str(out), *options)
    assert "test.en.above_baseline" in output
    return out


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.output


def first_image(data: Path) -> Path:
    return next((data / "images").rglob("*.png"))


def test_run_reports_a_baseline_and_writes_a_model(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert set(report) == {"answers", "questions", "training", "test"}
    assert set(report["test"]) == {"en", "de"}
    english = report["test"]["en"]
    types = {"of number", "of other", "of yes/no"}
    assert set(english["model"]) == {"accuracy", "bleu", "sentence_bleu", *types}
    assert set(english["baseline"]) == {*english["model"], "first_words"}
    difference = english["model"]["accuracy"] - english["baseline"]["accuracy"]
    assert english["above_baseline"] == pytest.approx(difference)
    assert english["baseline"]["accuracy"] > 15  # half of the yes/no questions, a fifth of all
    names = {path.name for path in (run / "model").iterdir()}
    assert {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "image_backbone",
    } <= names  # fmt: skip
    assert "en.baseline" in (run / "model" / "README.md").read_text()


def test_model_is_written_even_if_evaluation_fails(
    data: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PolyglanceError("evaluation is broken")

    monkeypatch.setattr("polyglance.recipes.vqa.train.evaluate", fail)
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
    (tmp_path / "vqa.yaml").write_text(recipe, encoding="utf-8")
    with pytest.raises(PolyglanceError, match="evaluation is broken"):
        open_recipe(str(tmp_path / "vqa.yaml")).train(data, tmp_path / "run")
    assert VQA.open(tmp_path / "run").languages == ("de", "en")


def test_missing_tokenizer_of_bleu_leaves_out_bleu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MissingTokenizerError("BLEU needs MeCab: pip install 'sacrebleu[ja]'")

    monkeypatch.setattr(evaluation, "corpus_bleu", fail)
    questions = [Question("何色ですか", "ja", ("赤",), "other")]
    assert evaluation.figures(questions, ["赤"]) == {"accuracy": 100.0, "of other": 100.0}
    report = evaluation.evaluate(questions, ["赤"], [])
    assert report["ja"]["without_bleu"] == (
        "BLEU needs MeCab: pip install 'sacrebleu[ja]', and run the same command again"
    )


def test_question_is_answered_in_any_training_language(data: Path, run: Path) -> None:
    image = str(first_image(data))
    command = ("ask", image, "Welche Farbe hat der Kreis?", "--model", str(run / "model"))
    answers: list[dict[str, Any]] = json.loads(
        invoke(*command, "--language", "de", "-k", "2", "--json")
    )
    assert [set(answer) for answer in answers] == [{"text", "language", "probability"}] * 2
    assert {answer["language"] for answer in answers} == {"de"}
    assert 1 >= answers[0]["probability"] >= answers[1]["probability"] >= 0
    assert answers[0]["text"] in invoke(*command, "--language", "de")
    # The same from Python, with the run folder itself.
    direct = VQA.open(run).ask(image, "Welche Farbe hat der Kreis?", language="de", k=2)
    assert [answer.text for answer in direct] == [answer["text"] for answer in answers]


def test_answers_are_in_the_language_of_the_question(data: Path, run: Path) -> None:
    image, vqa = first_image(data), VQA.open(run)
    for language, question in (
        ("en", "What colour is the circle?"),
        ("de", "Welche Farbe hat der Kreis?"),
        ("en", "How many squares are there?"),
        ("de", "Wie viele Quadrate gibt es?"),
    ):
        answers = vqa.ask(image, question, k=5)
        assert {answer.language for answer in answers} == {language}
        assert answers == vqa.ask(image, question, language=language, k=5)
    # Without a lexicon the language cannot be detected, and answers are in any.
    vqa.lexicon = None
    all_answers = vqa.ask(image, "Welche Farbe hat der Kreis?", k=1000)
    assert {answer.language for answer in all_answers} == {"en", "de"}


def test_missing_questions_fail_before_anything_is_written(data: Path, tmp_path: Path) -> None:
    recipe = replace(
        full_recipe(data),
        init_from_dual_encoder="polyglance-small",
        test=(QuestionFile("none.jsonl"),),
    )
    with pytest.raises(DataError, match=r"none.jsonl: there is no such file: give the folder"):
        train(recipe, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def full_recipe(data: Path) -> VQARecipe:
    """Return a recipe with projection heads and object tags."""
    return VQARecipe(
        encoder=str(data / "encoder"),
        image_backbone=ImageBackboneConfig(str(data / "image_backbone"), size=64, views=2),
        projection_heads=str(data / "projection_heads"),
        object_tags=ObjectTagsConfig(str(data / "detector"), low_score=0.05),
        train=(QuestionFile("train.jsonl"),),
        test=(QuestionFile("test.jsonl"),),
        answers=AnswerConfig(min_score=1),
        batch=16,
        loop=LoopConfig(steps=3, validate_every=0, precision="float32"),
        max_text_tokens=60,
    )


@pytest.fixture(scope="module")
def full_run(data: Path) -> Path:
    """Train with projection heads and a detector of random weights."""
    width = json.loads((data / "encoder" / "config.json").read_text())["hidden_size"]
    torch.manual_seed(0)
    save_projection_heads(
        ProjectionHeads(ProjectionHeadsConfig(WIDTH, width, 1, 4)), data / "projection_heads"
    )
    (data / "detector").mkdir()
    convert(write_package(data / "detector.tgz", package_weights()), data / "detector")
    train(full_recipe(data), data, data.parent / "full")
    return data.parent / "full"


def test_model_with_tags_and_similarity_is_self_contained(
    data: Path, full_run: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(full_run / "model", tmp_path / "moved")
    vqa = VQA.open(moved)
    assert vqa.tagger is not None
    assert vqa.model.similarity is not None
    image = first_image(data)
    (tags,) = vqa.tagger.tag([image])
    text = vqa.encode_question("Why?", image)
    assert text.ids.tolist() == vqa.tokenizer.encode(f"Why? {tags}", max_length=60)
    assert len(text.ids) > len(vqa.tokenizer.encode("Why?"))
    assert vqa.model.similarity.answer_vectors.norm(dim=1).sub(1).abs().max() < 1e-4
    # Similarities are standardised over the training images.
    files = sorted((data / "images").rglob("*.png"))
    similarities = torch.cat(
        [vqa.model.similarity(view) for file in files for view in vqa.encode_image(file)]
    )
    assert similarities.mean().abs() < 0.5
    assert 0.5 < similarities.std() < 2
    # Words keep their positions whatever tags follow the question.
    question = "What colour is the circle?"
    tagged = Explainer.open(moved).explain(image, question, language="en", method="attention")
    assert tagged.words == ["What", "colour", "is", "the", "circle"]
    explainer = Explainer.open(moved)
    assert explainer.vqa is not None
    explainer.vqa.tagger = None
    untagged = explainer.explain(image, question, language="en", method="attention")
    assert untagged.words == tagged.words
    assert np.abs(untagged.heatmaps - tagged.heatmaps).max() > 1e-6


def test_evaluation_gives_the_answers_of_single_questions(data: Path, full_run: Path) -> None:
    """A whole packed split gives the same answers as one question at a time."""
    vqa = VQA.open(full_run)
    vqa_data = load_data(full_recipe(data), data, "cpu")
    (test,) = vqa_data.tests
    with torch.no_grad():  # after three steps it gives one answer to everything
        vqa.model.similarity_weight.bias.fill_(3.0)
    answers = predict(vqa.model, test, vqa_data.vocabulary)
    assert len(set(answers)) > 4
    files = [
        data / str(r.image) for r in read_all_records("jsonl", data / "test.jsonl") if r.questions
    ]
    images = list(dict.fromkeys(files))
    for number in range(0, len(answers), 7):
        question = test.questions[number]
        image = images[test.table.record_ids[number]]
        (best,) = vqa.ask(image, question.text, language=question.language, k=1)
        assert best.text == answers[number]


def test_run_resumes_only_with_its_own_recipe(data: Path, full_run: Path) -> None:
    recipe = full_recipe(data)
    assert recipe.object_tags is not None
    for other in (
        replace(recipe, object_tags=None),
        replace(recipe, object_tags=replace(recipe.object_tags, max_classes=2)),
    ):
        with pytest.raises(PolyglanceError, match="holds a run with another recipe"):
            train(other, data, full_run)
    assert open_recipe(str(full_run / "recipe.yaml")).settings == recipe


def test_projection_heads_of_another_encoder_fail_before_training(
    data: Path, full_run: Path, tmp_path: Path
) -> None:
    assert full_run.is_dir()  # it has written the detector
    narrow = ProjectionHeads(ProjectionHeadsConfig(WIDTH, 8, 1, 4))
    save_projection_heads(narrow, tmp_path / "narrow")
    with pytest.raises(PolyglanceError, match="a different encoder"):
        train(replace(full_recipe(data), projection_heads=str(tmp_path / "narrow")), data, tmp_path)


def test_unanswerable_requests_are_refused(
    data: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyglance.encoders.reader_files.has_reader", lambda folder: False)
    image = str(first_image(data))
    with pytest.raises(PolyglanceError, match="polyglance train vqa-en-vi --data DATA"):
        invoke("ask", image, "Why?")
    with pytest.raises(PolyglanceError, match="no answers in 'fr', only in de, en"):
        invoke("ask", image, "Pourquoi ?", "--model", str(run), "--language", "fr")
    with pytest.raises(PolyglanceError, match="holds no question-answering model"):
        invoke("ask", image, "Why?", "--model", str(data))
    with pytest.raises(PolyglanceError, match="the question ' ' has no words"):
        invoke("ask", image, " ", "--model", str(run))
    with pytest.raises(PolyglanceError, match="the question is empty"):
        VQA.open(run).ask(image, " ")
    with pytest.raises(PolyglanceError, match="no model to explain"):
        invoke("explain", image, "a dog", "--out", str(data))
    with pytest.raises(PolyglanceError, match="names no questions"):
        VQARecipe(train=())


@pytest.mark.parametrize("by", ["relevance", "attention"])
def test_question_is_explained_in_two_languages(
    data: Path, run: Path, tmp_path: Path, by: str
) -> None:
    output = invoke(
        "explain", str(first_image(data)), "What colour is the circle?", "--language", "en",
        "--translation", "de:Welche Farbe hat der Kreis?", "--model", str(run), "--by", by,
        "--out", str(tmp_path),
    )  # fmt: skip
    assert str(tmp_path / "attribution.png") in output
    page = (tmp_path / "attribution.html").read_text(encoding="utf-8")
    assert page.count("<img") == (2 if by == "relevance" else 10)
    assert 'lang="de"' in page


@pytest.fixture(scope="module")
def uc2_run(data: Path) -> Path:
    """Pre-train UC2 for two steps with the same image backbone."""
    captions = [
        {"image": line["image"], "captions": {"en": [line["question"]]}}
        for line in map(json.loads, (data / "train.jsonl").read_text().splitlines())
        if line["language"] == "en"
    ]
    (data / "captions.jsonl").write_text("\n".join(json.dumps(line) for line in captions) + "\n")
    backbone = f"{{backbone: {data / 'image_backbone'}, size: 64, views: 1}}"
    changes = [
        f"encoder={data / 'encoder'}", f"image_backbone={backbone}",
        "train={manifest: captions.jsonl}", "validation=null", "test=null",
        "early_adaptation=null", "pretraining.mixture={itm: 1, mlm: 1, mrtm: 0, vtlm: 0}",
        "word_head={batch: 4, steps: 1}",
        "pretraining.steps=2", "pretraining.itm_only_steps=1", "pretraining.batch=4",
        "fine_tuning=null", "reranking=null", "loop.precision=float32", "max_text_tokens=30",
    ]  # fmt: skip
    out = data.parent / "uc2"
    open_recipe("uc2-flickr8k", changes).train(data, out)
    return out


def test_words_of_a_pretrained_uc2_are_explained(data: Path, uc2_run: Path) -> None:
    image, explainer = first_image(data), Explainer.open(uc2_run)
    sentence = "What colour is the circle?"
    by_relevance = explainer.explain(image, sentence, language="en")
    by_attention = explainer.explain(image, sentence, method="attention", layers=[2])
    for result in (by_relevance, by_attention):
        assert result.words == ["What", "colour", "is", "the", "circle"]
        assert result.heatmaps.shape == (5, 2, 2)
        assert (result.heatmaps >= 0).all()
    assert (by_attention.heatmaps.sum((1, 2)) < 1).all()
    assert by_relevance.heatmaps.max() > 0
    with pytest.raises(PolyglanceError, match="layers from 1 to 2"):
        explainer.explain(image, sentence, method="attention", layers=[3])
    # A stage opens like the run.
    assert Explainer.open(uc2_run / "pretraining").explain(image, sentence).words[0] == "What"


def test_question_answering_begins_with_a_pretrained_uc2(
    data: Path, uc2_run: Path, tmp_path: Path
) -> None:
    recipe = VQARecipe(
        encoder=str(data / "encoder"),
        image_backbone=ImageBackboneConfig(str(data / "image_backbone"), size=64, views=1),
        initialise_from=str(uc2_run / "pretraining"),
        train=(QuestionFile("test.jsonl"),),
        held_out=0,
        answers=AnswerConfig(min_score=1),
        loop=LoopConfig(steps=0),
    )
    report = train(recipe, data, tmp_path)
    assert "test" not in report
    pretrained = load_file(uc2_run / "pretraining" / "latest" / "model.safetensors")
    model = load_file(tmp_path / "model" / "model.safetensors")
    for name, value in pretrained.items():
        if not name.startswith("word_transform."):  # predicts words, which answering does not
            assert torch.equal(model[f"cross_encoder.{name}"], value)
