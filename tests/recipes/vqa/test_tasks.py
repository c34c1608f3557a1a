"""Questions about pictures: targets, drawing, and learning to answer in two languages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from polyglance.evaluation.answer_classes import AnswerClasses

from helpers.text_encoder import unigram_tokenizer
from helpers.toy_regions import WIDTH, first_regions
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Thing, ToyDataset
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import evaluate_answers
from polyglance.evaluation.question_types import BestAnswers
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.vqa.data import Questions, questions_of
from polyglance.recipes.vqa.evaluation import predict
from polyglance.recipes.vqa.tasks import AnsweredQuestions, AnswerTargets
from polyglance.records import Question, Record
from polyglance.text import Tokenizer
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

LANGUAGES = ("en", "de")


def test_targets_are_gathered_as_a_loop_would() -> None:
    scores = [{1: 0.5, 3: 1.0}, {}, {0: 0.3}, {2: 0.9, 0: 0.1}]
    targets = AnswerTargets.of(scores, 4)
    rows = np.array([3, 0, 1, 3, 2])
    expected = torch.zeros(5, 4)
    for place, row in enumerate(rows):
        for number, score in scores[row].items():
            expected[place, number] = score
    assert torch.equal(targets.gather(rows), expected)
    mean = torch.tensor([[found.get(n, 0.0) for n in range(4)] for found in scores]).mean(0)
    assert torch.allclose(targets.mean(), mean)


def table_of(languages: list[str]) -> CaptionTable:
    class Letters:
        def encode_batch(self, texts: object) -> list[list[int]]:
            return [[0, 1] for _ in texts]  # type: ignore[attr-defined]

    records = [Record(captions={language: ("?",)}) for language in languages]
    return CaptionTable.build(records, Letters(), languages=LANGUAGES)


@pytest.mark.parametrize(("smoothing", "share"), [(1.0, 0.9), (0.5, 0.75), (0.0, 0.5)])
def test_languages_are_drawn_by_their_questions_smoothed(smoothing: float, share: float) -> None:
    table = table_of(["en"] * 90 + ["de"] * 10 + ["en"] * 5)
    targets = AnswerTargets.of([{0: 1.0}] * 100 + [{}] * 5, 1)
    task = AnsweredQuestions(
        None, None, table, targets, batch=20_000, smoothing=smoothing  # type: ignore[arg-type]
    )  # fmt: skip
    rows = task.draw(np.random.default_rng(0))
    assert rows.max() < 100  # what has no answer among the classes is never asked
    assert np.mean(table.language_ids[rows] == 0) == pytest.approx(share, abs=0.015)
    assert len(np.unique(rows)) == 100


def test_questions_without_an_answer_to_learn_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="no question has an answer"):
        AnsweredQuestions(
            None, None, table_of(["en"]), AnswerTargets.of([{}], 1), batch=1  # type: ignore[arg-type]
        )  # fmt: skip


def asked(count: int, split: str, tokenizer: Tokenizer | None) -> tuple[Questions, Tokenizer]:
    """Colour and shape of the one thing there is, asked in both languages."""
    pictures = list(
        ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1).pictures(count, split)
    )  # type: ignore[arg-type]
    by_picture = []
    for picture in pictures:
        thing = picture.scene.things[0].thing
        bare, colour = Thing(thing.shape), thing.true_colour
        by_picture.append(
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
        texts = [question.text for some in by_picture for question in some]
        tokenizer = unigram_tokenizer(texts, pieces=120)
    regions = first_regions(pictures)
    return questions_of(by_picture, tokenizer, LANGUAGES, regions, longest=30), tokenizer


def test_a_model_learns_to_answer_in_both_languages(tmp_path: Path) -> None:
    """The picture has to be looked at: without it, one colour in six is right."""
    learned, tokenizer = asked(150, "train", None)
    tested, _ = asked(60, "test", tokenizer)
    classes = AnswerClasses.most_frequent(learned.questions, least=1)
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, num_layers=1, num_heads=4, intermediate_size=64, max_position_embeddings=40,
        dropout=0.0,
    )  # fmt: skip
    model = VQAModel(UC2(UC2Config(config, WIDTH)), len(classes))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and name != "meanings":
            torch.nn.init.normal_(parameter, std=0.3 if "words" in name else 0.1)
    targets = classes.targets(learned.questions)
    model.initialise_head(targets.mean())
    task = AnsweredQuestions(model, learned.regions, learned.table, targets, batch=64)
    loop = LoopConfig(steps=180, learning_rate=5e-3, schedule="cosine", warmup=10, save_every=0)
    train_loop(model, Mixture({"answering": task}), loop, tmp_path, quiet=True)
    result = evaluate_answers(tested.questions, predict(model, tested, classes))
    best = BestAnswers.learn(learned.questions, words=4)
    blind = evaluate_answers(tested.questions, [best.answer(q) for q in tested.questions])
    for language in LANGUAGES:
        assert result.by_language[language] > 90
        assert result.by_language[language] > blind.by_language[language] + 40
    # The same model with other pictures than those asked about says something else.
    owners = (tested.table.record_ids + 7) % len(tested.regions)
    object.__setattr__(tested.table, "record_ids", owners)
    wrong = evaluate_answers(tested.questions, predict(model, tested, classes))
    assert wrong.score < 50
