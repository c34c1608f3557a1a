"""Answers as classes: the most frequent ones of each language, and what they are worth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import answer_scores
from polyglance.records import Question
from polyglance.training.questions import AnswerTargets


@dataclass(frozen=True)
class AnswerClasses:
    """What can be answered: one language's answers after another's, in normal form."""

    by_language: Mapping[str, tuple[str, ...]]

    @classmethod
    def most_frequent(
        cls, questions: Sequence[Question], *, most: int = 3000, least: float = 2.0
    ) -> AnswerClasses:
        """The ``most`` answers of each language that would score highest if given always.

        With one answer a question that is how often each was given. What scores less
        than ``least`` in all is left out.
        """
        totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for question in questions:
            for answer, score in answer_scores(question).items():
                totals[question.language][answer] += score
        found = {}
        for language, scores in sorted(totals.items()):
            ranked = sorted(scores.items(), key=lambda known: (-known[1], known[0]))
            if kept := tuple(text for text, score in ranked[:most] if score >= least):
                found[language] = kept
        if not found:
            raise PolyglanceError(
                "no answer was given often enough to be a class: lower answers.least"
            )
        return cls(found)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Language and answer of each class."""
        return tuple(
            (language, text) for language, texts in self.by_language.items() for text in texts
        )

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        return {name: number for number, name in enumerate(self.names)}

    def of_language(self, language: str) -> NDArray[np.int64]:
        """The classes of one language."""
        found = [number for number, (spoken, _) in enumerate(self.names) if spoken == language]
        if not found:
            raise PolyglanceError(
                f"the model has no answers in {language!r}, only in {', '.join(self.by_language)}"
            )
        return np.array(found, np.int64)

    def targets(self, questions: Sequence[Question]) -> AnswerTargets:
        """What each class is worth as an answer to each question, by VQA v2's score."""
        worth = []
        for question in questions:
            scores = ((question.language, a, s) for a, s in answer_scores(question).items())
            worth.append(
                {
                    self._numbers[language, answer]: score
                    for language, answer, score in scores
                    if (language, answer) in self._numbers
                }
            )
        return AnswerTargets.of(worth, len(self))
