"""What can be answered without a look: the best answer for each type of question.

A type is how a question begins ("how many", "is there a"), as in VQA v2. Whoever
knows nothing else gives the answer that scored best with such questions before; a
model that looks at pictures has to do better.
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
"""A language, and the first words of questions in it."""


@dataclass(frozen=True)
class BestAnswers:
    """The answer for each type of question, by its first ``words``, or fewer of them."""

    words: int
    answers: dict[_Type, str]

    @classmethod
    def learn(cls, questions: Sequence[Question], *, words: int = 2, least: int = 5) -> BestAnswers:
        """From questions with answers; a type has ``least`` questions, or goes by fewer words."""
        scores: dict[_Type, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        asked: dict[_Type, int] = defaultdict(int)
        for question in questions:
            for kind in _types(question, words):
                asked[kind] += 1
                for answer, score in answer_scores(question).items():
                    scores[kind][answer] += score
        best = {
            kind: max(sorted(found), key=found.__getitem__)
            for kind, found in scores.items()
            if asked[kind] >= least or len(kind) == 1
        }
        return cls(words, best)

    def answer(self, question: Question) -> str:
        """The answer of the narrowest type that is known."""
        for kind in _types(question, self.words):
            if kind in self.answers:
                return self.answers[kind]
        raise PolyglanceError(f"no question in {question.language!r} was there to learn from")


def _types(question: Question, words: int) -> list[_Type]:
    """What a question is of, from its first ``words`` to its language alone."""
    text = question.text.casefold()
    cut = list(text.replace(" ", "")) if is_spaceless(question.language) else text.split()
    first = [word.strip("?!.,¿¡\"'") for word in cut[:words]]
    return [(question.language, *first[:count]) for count in range(len(first), -1, -1)]
