"""A VQA baseline that ignores the image: the best answer for each question type.

A type is how a question begins ("how many", "is there a"), as in VQA v2. The baseline gives
the answer that scored best for such questions in training; a model must do better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import answer_scores
from polyglance.languages import is_spaceless
from polyglance.records import Question

_Type = tuple[str, ...]
"""A language, and the first words of a question."""


@dataclass(frozen=True)
class QuestionTypes:
    """How many questions there are of each type, and its best answer.

    One pass over many questions; `QuestionTypePrior` takes its types from here.
    """

    counts: dict[_Type, int]
    best: dict[_Type, str]

    @classmethod
    def learn(cls, questions: Sequence[Question], *, max_words: int) -> QuestionTypes:
        """Learn from questions with answers the types of up to ``max_words`` first words."""
        scores: dict[_Type, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        counts: dict[_Type, int] = defaultdict(int)
        for question in questions:
            own = answer_scores(question)
            for kind in _types(question, max_words):
                counts[kind] += 1
                for answer, score in own.items():
                    scores[kind][answer] += score
        best = {
            kind: max(sorted(answers), key=answers.__getitem__) for kind, answers in scores.items()
        }
        return cls(dict(counts), best)


@dataclass(frozen=True)
class QuestionTypePrior:
    """The best answer for each question type, given by at most ``words`` first words."""

    words: int
    answers: dict[_Type, str]

    @classmethod
    def learn(
        cls, questions: Sequence[Question], *, words: int = 2, min_questions: int = 5
    ) -> QuestionTypePrior:
        """Learn from questions with answers.

        Args:
            questions: Questions with answers.
            words: Number of first words that make a type.
            min_questions: Types with fewer questions are left to types of fewer words.
        """
        types = QuestionTypes.learn(questions, max_words=words)
        return cls.of_types(types, words=words, min_questions=min_questions)

    @classmethod
    def of_types(
        cls, types: QuestionTypes, *, words: int = 2, min_questions: int = 5
    ) -> QuestionTypePrior:
        """Take the types of at most ``words`` first words that have enough questions.

        Args:
            types: Of as many first words, or more.
            words: Number of first words that make a type.
            min_questions: Types with fewer questions are left to types of fewer words.
        """
        answers = {
            kind: answer
            for kind, answer in types.best.items()
            if len(kind) == 1 or (len(kind) <= words + 1 and types.counts[kind] >= min_questions)
        }
        return cls(words, answers)

    def answer(self, question: Question) -> str:
        """Return the answer of the longest known type."""
        for kind in _types(question, self.words):
            if kind in self.answers:
                return self.answers[kind]
        raise PolyglanceError(
            f"no training question is in {question.language!r}: train on questions in it"
        )


def _types(question: Question, words: int) -> list[_Type]:
    """Return a question's types, from its first ``words`` to its language alone."""
    text = question.text.casefold()
    tokens = list(text.replace(" ", "")) if is_spaceless(question.language) else text.split()
    first = [word.strip("?!.,¿¡\"'") for word in tokens[:words]]
    return [(question.language, *first[:count]) for count in range(len(first), -1, -1)]
