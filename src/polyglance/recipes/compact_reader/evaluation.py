"""Evaluate a reader: re-ranked retrieval beside the dual encoder's, and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from polyglance.encoders.answers import AnswerVocabulary
from polyglance.evaluation.retrieval import Array
from polyglance.models.vqa import VQAModel
from polyglance.recipes.compact_reader.data import DualEncoder, EvaluationSplit, ReaderData
from polyglance.recipes.compact_reader.tasks import dual_image_vectors, dual_text_vectors
from polyglance.recipes.cross_encoder.evaluation import (
    DualScores,
    evaluate_split,
    tune_dual_weight,
)
from polyglance.recipes.retrieval_report import rows_by_language
from polyglance.recipes.vqa.data import QuestionSplit
from polyglance.recipes.vqa.evaluation import evaluate, predict
from polyglance.recipes.vqa.evaluation import validate as validate_answers
from polyglance.records import Question


def dual_scores(dual: DualEncoder, evaluated: EvaluationSplit) -> DualScores:
    """Return the dual encoder's cosines of a split.

    Where the reader takes images of another size, those with test-time augmentation are the mean
    over both sizes, as in `polyglance.encoders.reader`.
    """
    split = evaluated.split
    texts = {
        language: dual_text_vectors(dual.model, split.captions, rows)
        for language, rows in rows_by_language(split.captions)
    }
    images = dual_image_vectors(dual.model, split.regions)
    if evaluated.dual_regions is None:
        return DualScores(_cosines(images, texts), None)
    own = dual_image_vectors(dual.model, evaluated.dual_regions)
    return DualScores(_cosines(own, texts), _cosines((own + images) / 2, texts))


def _cosines(images: Tensor, texts: Mapping[str, Tensor]) -> dict[str, Array]:
    return {language: (images @ vectors.T).cpu().numpy() for language, vectors in texts.items()}


class ReaderEvaluation:
    """Measures a reader, trained or compressed, on the same splits."""

    def __init__(self, data: ReaderData, candidates: int) -> None:
        """``candidates`` hits are re-ranked."""
        self.data, self.candidates = data, candidates
        splits = {"validation": data.validation, "test": data.test}
        self._dual = {
            name: dual_scores(data.dual, split)
            for name, split in splits.items()
            if split is not None
        }

    def validate(self, model: VQAModel, tuned: Mapping[str, Any] | None = None) -> dict[str, float]:
        """Return re-ranked mR, the VQA score and their mean, which chooses the checkpoint.

        ``tuned`` is what `tune` returned for the model, if it was called before.
        """
        scores: dict[str, float] = {}
        if self.data.validation is not None:
            tuned = self.tune(model) if tuned is None else tuned
            weight = str(tuned["dual_weight"])
            scores |= {"dual": tuned["dual"], "reranked": tuned["by_dual_weight"][weight]}
        if self.data.held_out is not None:
            answers = validate_answers(model, self.data.held_out, self.data.answers)
            scores |= {f"vqa.{name}": value for name, value in answers.items()}
        found = [scores[name] for name in ("reranked", "vqa.score") if name in scores]
        return {**scores, "score": float(np.mean(found)) if found else 0.0}

    def tune(self, model: VQAModel) -> dict[str, Any]:
        """Choose the weight of the dual encoder's cosine on the validation split."""
        if self.data.validation is None:
            return {"dual_weight": 0.0}
        return tune_dual_weight(
            model.cross_encoder,
            self.data.validation.split,
            self._dual["validation"],
            self.candidates,
        )

    def report(self, model: VQAModel) -> dict[str, Any]:
        """Return results on validation, with the weight of the dual encoder's cosine."""
        tuned = self.tune(model)
        return {"validation": {**tuned, **self.validate(model, tuned)}}

    def test(self, model: VQAModel, dual_weight: float) -> dict[str, Any]:
        """Return answers to the test questions and re-ranked retrieval, where there are tests."""
        report: dict[str, Any] = {}
        if self.data.question_tests:
            held = self.data.held_out
            known = [*self.data.questions.questions, *(held.questions if held else ())]
            report["questions"] = _answer(model, self.data.question_tests, self.data.answers, known)
        if self.data.test is not None:
            report["test"] = evaluate_split(
                model.cross_encoder,
                self.data.test.split,
                all_pairs=False,
                dual=self._dual["test"],
                k=self.candidates,
                dual_weight=dual_weight,
            )
        return report


def _answer(
    model: VQAModel,
    splits: Sequence[QuestionSplit],
    answers: AnswerVocabulary,
    training: Sequence[Question],
) -> dict[str, Any]:
    """Answer all test questions and score them beside the best answer of each type."""
    questions = [question for split in splits for question in split.questions]
    given = [answer for split in splits for answer in predict(model, split, answers)]
    return evaluate(questions, given, training)
