"""Question answering: targets, sampling, and learning to answer in two languages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.text_encoder import unigram_tokenizer
from helpers.toy_regions import WIDTH, first_regions
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Thing, ToyDataset
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import evaluate_answers
from polyglance.evaluation.question_types import QuestionTypePrior
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.vqa.data import QuestionSplit, build_split
from polyglance.recipes.vqa.evaluation import predict
from polyglance.recipes.vqa.questions import answer_targets, build_answer_vocabulary
from polyglance.recipes.vqa.tasks import AnswerTargets, VQATask
from polyglance.records import Question, Record
from polyglance.text import Tokenizer
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

LANGUAGES = ("en", "de")


def test_gathered_targets_equal_a_loop() -> None:
    scores = [{1: 0.5, 3: 1.0}, {}, {0: 0.3}, {2: 0.9, 0: 0.1}]
    targets = AnswerTargets.from_scores(scores, 4)
    rows = np.array([3, 0, 1, 3, 2])
    expected = torch.zeros(5, 4)
    for position, row in enumerate(rows):
        for number, score in scores[row].items():
            expected[position, number] = score
    assert torch.equal(targets.gather(rows), expected)
    mean = torch.tensor([[some.get(n, 0.0) for n in range(4)] for some in scores]).mean(0)
    assert torch.allclose(targets.mean(), mean)


def table_of(languages: list[str]) -> CaptionTable:
    class Letters:
        def encode_batch(self, texts: object) -> list[list[int]]:
            return [[0, 1] for _ in texts]  # type: ignore[attr-defined]

    records = [Record(captions={language: ("?",)}) for language in languages]
    return CaptionTable.build(records, Letters(), languages=LANGUAGES)


@pytest.mark.parametrize(("alpha", "share"), [(1.0, 0.9), (0.5, 0.75), (0.0, 0.5)])
def test_languages_are_sampled_by_their_questions_to_the_power_of_alpha(
    alpha: float, share: float
) -> None:
    table = table_of(["en"] * 90 + ["de"] * 10 + ["en"] * 5)
    targets = AnswerTargets.from_scores([{0: 1.0}] * 100 + [{}] * 5, 1)
    task = VQATask(
        None, None, table, targets, batch=20_000, language_alpha=alpha  # type: ignore[arg-type]
    )  # fmt: skip
    rows = task.sample_rows(np.random.default_rng(0))
    assert rows.max() < 100  # questions without an answer class are never sampled
    assert np.mean(table.language_ids[rows] == 0) == pytest.approx(share, abs=0.015)
    assert len(np.unique(rows)) == 100


def test_questions_without_any_answer_class_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="no question has an answer"):
        VQATask(
            None, None, table_of(["en"]), AnswerTargets.from_scores([{}], 1), batch=1  # type: ignore[arg-type]
        )  # fmt: skip


def question_split(
    count: int, split: str, tokenizer: Tokenizer | None
) -> tuple[QuestionSplit, Tokenizer]:
    """Return questions in both languages about colour and shape of each image's only thing."""
    pictures = list(
        ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1).pictures(count, split)
    )  # type: ignore[arg-type]
    by_image = []
    for picture in pictures:
        thing = picture.scene.things[0].thing
        bare, colour = Thing(thing.shape), thing.true_colour
        by_image.append(
            [
                Question(grammar.text(tokens), language, (answer,), kind)
                for language in LANGUAGES
                for grammar in (GRAMMARS[language],)
                for kind, tokens, answer in (
                    ("colour", grammar.ask_colour(bare), grammar.colours[colour]),
                    ("shape", grammar.ask_shape(colour), grammar.join(grammar.label(bare))),
                )
            ]
        )
    if tokenizer is None:
        texts = [question.text for some in by_image for question in some]
        tokenizer = unigram_tokenizer(texts, pieces=120)
    regions = first_regions(pictures)
    return build_split(by_image, tokenizer, LANGUAGES, regions, max_tokens=30), tokenizer


def test_model_learns_to_answer_in_both_languages(tmp_path: Path) -> None:
    """Without the image, one colour in six is right."""
    train, tokenizer = question_split(150, "train", None)
    test, _ = question_split(60, "test", tokenizer)
    vocabulary = build_answer_vocabulary(train.questions, min_score=1)
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_layers=1,
        num_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        dropout=0.0,
    )
    model = VQAModel(UC2(UC2Config(config, WIDTH)), len(vocabulary))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and name != "answer_embeddings":
            torch.nn.init.normal_(parameter, std=0.3 if "words" in name else 0.1)
    targets = answer_targets(vocabulary, train.questions)
    model.initialise_head(targets.mean())
    task = VQATask(model, train.regions, train.table, targets, batch=64)
    loop = LoopConfig(steps=180, learning_rate=5e-3, schedule="cosine", warmup=10, save_every=0)
    train_loop(model, Mixture({"vqa": task}), loop, tmp_path, quiet=True)
    result = evaluate_answers(test.questions, predict(model, test, vocabulary))
    best = QuestionTypePrior.learn(train.questions, words=4)
    baseline = evaluate_answers(test.questions, [best.answer(q) for q in test.questions])
    for language in LANGUAGES:
        assert result.by_language[language] > 90
        assert result.by_language[language] > baseline.by_language[language] + 40
    # With the images of other questions, the same model answers wrongly.
    images = (test.table.record_ids + 7) % len(test.regions)
    object.__setattr__(test.table, "record_ids", images)
    wrong = evaluate_answers(test.questions, predict(model, test, vocabulary))
    assert wrong.score < 50
