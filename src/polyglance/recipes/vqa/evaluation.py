"""Evaluate question answering, next to the best answer for each type of question."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyglance.batches.inputs import pack_captions
from polyglance.encoders.answers import AnswerVocabulary
from polyglance.errors import MissingExtraError
from polyglance.evaluation.answers import AnswerResult, evaluate_answers
from polyglance.evaluation.bleu import MissingTokenizerError, corpus_bleu, sentence_bleu
from polyglance.evaluation.question_types import QuestionTypePrior, QuestionTypes
from polyglance.models.vqa import VQAModel
from polyglance.recipes import report_lines
from polyglance.recipes.vqa.data import QuestionSplit
from polyglance.records import Question, atomic_write
from polyglance.utils.bounded import parse_json

_BATCH = 256
_MAX_TYPE_WORDS = 8
"""The most first words that define a type of question."""
_MIN_TYPE_COUNTS = (1, 2, 3, 5, 10)
"""How many questions a type needs; smaller types use the answer of a wider one."""


@torch.no_grad()
def predict(model: VQAModel, split: QuestionSplit, vocabulary: AnswerVocabulary) -> list[str]:
    """Return the most probable answer to each question in its language.

    Args:
        model: the trained model.
        split: questions and images; logits are averaged over the images' views.
        vocabulary: the answers.

    Returns:
        One answer a question.
    """
    model.eval()
    device, table = split.regions.device, split.table
    in_language = torch.zeros(
        len(table.language_codes), len(vocabulary), dtype=torch.bool, device=device
    )
    for number, language in enumerate(table.language_codes):
        in_language[number, torch.from_numpy(vocabulary.in_language(language)).to(device)] = True
    best = []
    for start in range(0, len(table), _BATCH):
        rows = np.arange(start, min(start + _BATCH, len(table)))
        text = pack_captions(table, rows, device)
        views = (
            split.regions.take(table.record_ids[rows], view=view)[0]
            for view in range(split.regions.views)
        )
        # Flash attention takes bfloat16 alone.
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = torch.stack([model(text, regions).float() for regions in views]).mean(0)
        languages = torch.from_numpy(table.language_ids[rows]).to(device)
        best += logits.masked_fill(~in_language[languages], -torch.inf).argmax(1).tolist()
    return [vocabulary.names[number][1] for number in best]


def validate(
    model: VQAModel, split: QuestionSplit, vocabulary: AnswerVocabulary
) -> dict[str, float]:
    """Return each language's VQA score and their mean, which chooses the checkpoint."""
    result = evaluate_answers(split.questions, predict(model, split, vocabulary)).by_language
    return {**result, "score": float(np.mean(list(result.values())))}


def evaluate(
    questions: Sequence[Question], answers: Sequence[str], training: Sequence[Question]
) -> dict[str, Any]:
    """Score answers by language and type of answer, next to a baseline without images.

    Args:
        questions: those without people's answers are counted alone.
        answers: the model's.
        training: questions from which the baseline learns the best answer of each type. Of
            several ways to define types, the strongest on these very questions counts.

    Returns:
        By language the model's and the baseline's figures, and the difference, without a baseline
        in languages that were not trained on; how many questions have no answers to compare with,
        if there are any; and what BLEU lacks where it is not installed.
    """
    by_language: dict[str, tuple[list[Question], list[str]]] = {}
    unanswered: Counter[str] = Counter()
    for question, answer in zip(questions, answers, strict=True):
        if not question.answers:
            unanswered[question.language] += 1
            continue
        own, texts = by_language.setdefault(question.language, ([], []))
        own.append(question)
        texts.append(answer)
    learned = {question.language for question in training}
    types = QuestionTypes.learn(
        [question for question in training if question.language in by_language],
        max_words=_MAX_TYPE_WORDS,
    )
    baselines = [
        QuestionTypePrior.of_types(types, words=count, min_questions=least)
        for count in range(1, _MAX_TYPE_WORDS + 1)
        for least in _MIN_TYPE_COUNTS
    ]
    report: dict[str, Any] = {}
    for language, (own, texts) in by_language.items():
        model_figures = figures(own, texts)
        report[language] = {"questions": len(own), "model": model_figures}
        if "accuracy" in model_figures and "bleu" not in model_figures:
            reason = why_without_bleu(language)
            report[language]["without_bleu"] = f"{reason}, and run the same command again"
        if language not in learned:
            continue  # translate-test
        tried = [(best, [best.answer(question) for question in own]) for best in baselines]
        scores = [evaluate_answers(own, some).score for _, some in tried]
        best, baseline = tried[int(np.argmax(scores))]
        main = model_figures["score" if "score" in model_figures else "accuracy"]
        report[language] |= {
            "baseline": figures(own, baseline) | {"first_words": best.words},
            "above_baseline": float(main) - max(scores),
        }
    for language, count in unanswered.items():
        report.setdefault(language, {})["unscored_questions"] = count
    return report


def figures(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, Any]:
    """Return the VQA score where many people answered; else accuracy, and BLEU if installed.

    `why_without_bleu` says what to install.
    """
    result = evaluate_answers(questions, answers)
    if any(len(question.answers) > 1 for question in questions):
        return {"score": result.score, **_by_type(result)}
    scores = {"accuracy": result.score, **_by_type(result)}
    try:
        references = [question.answers for question in questions]
        language = questions[0].language
        scores["bleu"] = corpus_bleu(answers, references, language).score
        scores["sentence_bleu"] = sentence_bleu(answers, references, language)
    except (MissingExtraError, MissingTokenizerError):
        pass  # training does not require the packages that BLEU needs; the report says so
    return scores


def why_without_bleu(language: str) -> str | None:
    """Return why BLEU cannot be computed in a language and what to install; None if it can."""
    try:
        corpus_bleu(["."], [["."]], language)
    except (MissingExtraError, MissingTokenizerError) as error:
        return str(error).partition(", or choose")[0]  # answers are scored by one tokenizer
    return None


def _by_type(result: AnswerResult) -> dict[str, float]:
    return {f"of {kind}": score for kind, score in result.by_type.items()}


def write_submission(
    folder: Path, manifest: str, questions: Sequence[Question], answers: Sequence[str]
) -> Path | None:
    """Write the answers to a test file as the VQA challenge takes them.

    The file is one JSON list of ``{"question_id": 1, "answer": "red"}``, with the challenge's
    name: answers to ``v2_OpenEnded_mscoco_test-dev2015_questions.json`` become
    ``vqa_OpenEnded_mscoco_test-dev2015_polyglance_results.json``.

    Args:
        folder: the run folder.
        manifest: the test file.
        questions: all of it.
        answers: the model's.

    Returns:
        The file, or None if questions have no ids.
    """
    if any(question.id is None for question in questions):
        return None
    name = Path(manifest).name.removesuffix(".gz").removesuffix(".json").removesuffix("_questions")
    path = folder / f"vqa_{name.removeprefix('v2_')}_polyglance_results.json"
    results = [
        {"question_id": _official_id(str(question.id)), "answer": answer}
        for question, answer in zip(questions, answers, strict=True)
    ]
    with atomic_write(path) as out:
        out.write(json.dumps(results, ensure_ascii=False) + "\n")
    return path


def _official_id(number: str) -> int | str:
    """Return an id as a number, which the challenge's are."""
    return int(number) if number.isascii() and number.isdigit() else number


def write_answers(path: Path, questions: Sequence[Question], answers: Sequence[str]) -> None:
    """Write each question with people's and the model's answers, one line each."""
    with atomic_write(path) as out:
        for question, answer in zip(questions, answers, strict=True):
            line = {
                "question_id": question.id,
                "language": question.language,
                "type": question.answer_type,
                "question": question.text,
                "people": question.answers,
                "answer": answer,
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_answers(path: Path) -> Iterator[tuple[Question, str]]:
    """Read what `write_answers` wrote."""
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        entry = parse_json(line)
        people = tuple(entry["people"])
        question = Question(
            entry["question"], entry["language"], people, entry["type"], entry.get("question_id")
        )
        yield question, entry["answer"]


def write_model_card(
    folder: Path, answers: Mapping[str, Sequence[str]], report: dict[str, Any]
) -> None:
    """Write the model folder's ``README.md``: what the model is and how well it answers."""
    known = ", ".join(f"{code} ({len(texts):,})" for code, texts in answers.items())
    table = "\n".join(report_lines(report))
    with atomic_write(folder / "README.md") as file:
        file.write(
            "# A model that answers questions about pictures\n\n"
            "UC2 with a classifier over answers, trained with Polyglance's recipe `vqa`. It gives"
            f" one of the answers it knows: {known}.\n\n"
            f'    polyglance ask PICTURE "question" --model {folder.name}\n\n'
            "Figures on questions about pictures that were not in training, in percent, next to"
            f" the best answer for each type of question:\n\n```\n{table}\n```\n"
        )
