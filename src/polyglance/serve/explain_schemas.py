"""Request and response schemas of what a model reads in a picture: explanations and answers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from polyglance.serve.schemas import Language, QuestionText


class ExplainQuery(BaseModel):
    """The words to explain a hit by."""

    model_config = ConfigDict(extra="forbid")

    q: QuestionText = Field(description="Words, in a language of the model.")
    language: Language | None = Field(
        None, description="Language of the words, for models that need it."
    )


class WordAttribution(BaseModel):
    """The parts of the picture that match a word."""

    word: str
    cells: list[list[float]] = Field(
        description="Attribution of each cell of the picture, row by row, from 0 to 1."
    )


class Explanation(BaseModel):
    """The first words of a query with their attributions."""

    words: list[WordAttribution]


class AnswersQuery(BaseModel):
    """A question about a picture."""

    model_config = ConfigDict(extra="forbid")

    q: QuestionText = Field(description="A question, in a language of the model.")
    language: Language | None = Field(None, description="Language of the answers.")


class Answer(BaseModel):
    """An answer and its probability."""

    text: str
    language: str
    probability: float


class AnswersResponse(BaseModel):
    """The most probable answers, the best first."""

    answers: list[Answer]
