"""Summarise runs of visual question answering, with examples of their answers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from polyglance.evaluation.answers import vqa_score
from polyglance.recipes.vqa.evaluation import figures
from polyglance.records import Question

EXAMPLES = 3
"""Number of examples per question type: the first of the test, however they were answered."""
HUMAN_ANSWERS = 3
"""Number of human answers per example, the most frequent first."""

QuestionAnswer = tuple[Question, str]
"""A question, and the model's answer."""


def vqa_summary(
    reports: Sequence[Mapping[str, Any]], answers: Sequence[Sequence[QuestionAnswer]]
) -> dict[str, Any]:
    """Summarise the seeds by language: the model's scores beside the baseline's."""
    from polyglance.reproduce.summaries import over_seeds

    test: dict[str, Any] = {}
    for language, first in reports[0]["test"].items():
        scores = []
        types: Counter[str | None] = Counter()
        for of_seed in answers:
            pairs = [pair for pair in of_seed if pair[0].language == language]
            scores.append(figures([question for question, _ in pairs], [text for _, text in pairs]))
            types = Counter(question.answer_type for question, _ in pairs)
        ordered = sorted(types.items(), key=lambda item: str(item[0]))
        test[language] = {
            "questions": first["questions"],
            "questions_by_type": {f"of {name}": count for name, count in ordered},
            "model": {name: over_seeds([each[name] for each in scores]) for name in scores[0]},
            "baseline": first["baseline"],
            "above_baseline": over_seeds(
                [report["test"][language]["above_baseline"] for report in reports]
            ),
        }
    trained = [report["training"] for report in reports]
    return {
        "answers": reports[0]["answers"],
        "training_questions": reports[0]["questions"],
        "seconds": statistics.mean(each["seconds"] for each in trained),
        "steps": trained[0]["steps"],
        "best_steps": [each["best_step"] for each in trained],
        "validation": [each["best_score"] for each in trained],
        "test": test,
    }


def examples(answers: Sequence[QuestionAnswer]) -> list[dict[str, Any]]:
    """Return the first questions of each type and language, with human and model answers."""
    counts: Counter[tuple[str, str | None]] = Counter()
    rows = []
    for question, answer in answers:
        group = question.language, question.answer_type
        counts[group] += 1
        if counts[group] <= EXAMPLES:
            people = Counter(question.answers).most_common(HUMAN_ANSWERS)
            rows.append(
                {
                    "language": question.language,
                    "type": question.answer_type,
                    "question": question.text,
                    "people": [text for text, _ in people],
                    "answer": answer,
                    "score": vqa_score(answer, question.answers, question.language),
                }
            )
    return sorted(rows, key=lambda row: (row["language"], row["type"] or ""))
