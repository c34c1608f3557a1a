"""Answers to questions about images: what question-answering models return and choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError


@dataclass(frozen=True)
class Answer:
    """An answer and its probability: a reader's add up to 1 over all answers in a language."""

    text: str
    language: str
    probability: float


@dataclass(frozen=True)
class AnswerVocabulary:
    """The answers that are classes of the model, language after language, in normal form."""

    by_language: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Language and text of each class."""
        return tuple(
            (language, text) for language, texts in self.by_language.items() for text in texts
        )

    @cached_property
    def class_ids(self) -> dict[tuple[str, str], int]:
        """The class of each language and text."""
        return {name: number for number, name in enumerate(self.names)}

    def in_language(self, language: str) -> NDArray[np.int64]:
        """Return the classes of one language."""
        ids = [number for number, (code, _) in enumerate(self.names) if code == language]
        if not ids:
            raise PolyglanceError(
                f"the model has no answers in {language!r}, only in {', '.join(self.by_language)}"
            )
        return np.array(ids, np.int64)

    def best(
        self,
        probabilities: NDArray[np.float32],
        language: str | None,
        k: int,
        *,
        as_shares: bool = False,
    ) -> list[Answer]:
        """Return the most probable answers, best first.

        Args:
            probabilities: ``(classes,)``.
            language: Of the answers; None for any.
            k: How many.
            as_shares: Divide probabilities by their sum over the language. Those that each answer
                has by itself are low in all of a language with few questions.
        """
        allowed = np.arange(len(self)) if language is None else self.in_language(language)
        if as_shares:
            probabilities = probabilities / max(float(probabilities[allowed].sum()), 1e-9)
        best = allowed[np.argsort(-probabilities[allowed], kind="stable")[:k]]
        return [
            Answer(text, code, float(probabilities[number]))
            for number, (code, text) in ((n, self.names[n]) for n in best)
        ]
