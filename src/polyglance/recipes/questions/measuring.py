"""How well questions are answered, beside the best answer for each type of question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyglance.errors import MissingExtra
from polyglance.evaluation.answer_classes import AnswerClasses
from polyglance.evaluation.answers import (
    AnswerResult,
    MissingTokenizer,
    corpus_bleu,
    evaluate_answers,
    sentence_bleu,
)
from polyglance.evaluation.question_types import BestAnswers
from polyglance.models.answering import Answering
from polyglance.recipes.questions.world import Questions
from polyglance.records import Question, replacing
from polyglance.training.caption_sources import read_captions

_BLOCK = 256
_MOST_WORDS = 8
"""First words that a type of question may have, at most."""
_LEAST_ASKED = (1, 2, 3, 5, 10)
"""Questions of a type that answer for it; of fewer, those of a wider type do."""


@torch.no_grad()
def predict(model: Answering, asked: Questions, classes: AnswerClasses) -> list[str]:
    """The likeliest answer to each question, of those in its language, over all looks."""
    model.eval()
    device, table = asked.regions.features.device, asked.table
    own = torch.zeros(len(table.names), len(classes), dtype=torch.bool, device=device)
    for number, language in enumerate(table.names):
        own[number, torch.from_numpy(classes.of_language(language)).to(device)] = True
    best = []
    for start in range(0, len(table), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(table)))
        text = read_captions(table, rows).to(device)
        looks = (
            asked.regions.take(table.owners[rows], view=view)[0]
            for view in range(asked.regions.views)
        )
        # Flash attention takes bfloat16 alone.
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = torch.stack([model(text, regions).float() for regions in looks]).mean(0)
        languages = torch.from_numpy(table.languages[rows]).to(device)
        best += logits.masked_fill(~own[languages], -torch.inf).argmax(1).tolist()
    return [classes.names[number][1] for number in best]


def validate(model: Answering, asked: Questions, classes: AnswerClasses) -> dict[str, float]:
    """The VQA score of each language, and their mean, which chooses the checkpoint."""
    found = evaluate_answers(asked.questions, predict(model, asked, classes)).by_language
    return {**found, "score": float(np.mean(list(found.values())))}


def measure(
    asked: Sequence[Question], answers: Sequence[str], learned_from: Sequence[Question]
) -> dict[str, Any]:
    """By language: the score (or accuracy and BLEU), by kind of answer, beside the baseline.

    ``learned_from`` are the questions whose best answers the baseline gives; of several
    that tell more types or fewer, the strongest on these very questions is the one to beat.
    """
    given: dict[str, tuple[list[Question], list[str]]] = {}
    for question, answer in zip(asked, answers, strict=True):
        questions, texts = given.setdefault(question.language, ([], []))
        questions.append(question)
        texts.append(answer)
    types = [
        BestAnswers.learn(learned_from, words=count, least=least)
        for count in range(1, _MOST_WORDS + 1)
        for least in _LEAST_ASKED
    ]
    report: dict[str, Any] = {}
    for language, (questions, texts) in given.items():
        tried = [(best, [best.answer(question) for question in questions]) for best in types]
        scores = [evaluate_answers(questions, some).score for _, some in tried]
        best, plain = tried[int(np.argmax(scores))]
        model_figures = figures(questions, texts)
        report[language] = {
            "questions": len(questions),
            "model": model_figures,
            "baseline": figures(questions, plain) | {"first_words": best.words},
            "above_baseline": _main(model_figures) - max(scores),
        }
    return report


def write_answers(path: Path, asked: Sequence[Question], answers: Sequence[str]) -> None:
    """Write every question with what people and the model answered, a line each."""
    with replacing(path) as out:
        for question, answer in zip(asked, answers, strict=True):
            line = {
                "language": question.language,
                "type": question.answer_type,
                "question": question.text,
                "people": question.answers,
                "answer": answer,
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_answers(path: Path) -> Iterator[tuple[Question, str]]:
    """What `write_answers` wrote."""
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        found = json.loads(line)
        people = tuple(found["people"])
        question = Question(found["question"], found["language"], people, found["type"])
        yield question, found["answer"]


def figures(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, Any]:
    """The VQA score where many people answered; else accuracy, and BLEU where it is installed."""
    result = evaluate_answers(questions, answers)
    if any(len(question.answers) > 1 for question in questions):
        return {"score": result.score, **_by_type(result)}
    found = {"accuracy": result.score, **_by_type(result)}
    try:
        references = [question.answers for question in questions]
        language = questions[0].language
        found["bleu"] = corpus_bleu(answers, references, language).score
        found["sentence_bleu"] = sentence_bleu(answers, references, language)
    except (MissingExtra, MissingTokenizer):
        pass  # what trains is installed without what measures translations
    return found


def _by_type(result: AnswerResult) -> dict[str, float]:
    return {f"of {kind}": score for kind, score in result.by_type.items()}


def _main(found: dict[str, Any]) -> float:
    return float(found["score"] if "score" in found else found["accuracy"])
