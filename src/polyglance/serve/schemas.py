"""What goes in and comes out, as the OpenAPI document tells it."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

LONGEST_QUERY = 1000
LONGEST_QUESTION = 300
"""Of a text that a model reads beside a picture."""
MOST_HITS = 1000
"""How far down a search can be paged."""


def _plain(text: str) -> str:
    """Words on one line; no codes that steer terminals."""
    text = " ".join(text.split())
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise ValueError("holds control characters, which are no words")
    if not text:
        raise ValueError("is empty: give words, or leave it out")
    return text


def _digits(value: Any) -> Any:
    """A number in an address is digits alone; Python reads `+5`, `5_0` and blanks around as well.

    One below zero is left to the bounds, which say it better.
    """
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+", value):
        raise ValueError("is no whole number")
    return value


def _true_or_false(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value


Number = Annotated[int, BeforeValidator(_digits)]
ItemId = Annotated[Number, Path(ge=1, lt=2**53, description="The `id` of a hit.")]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
Words = Annotated[str, Field(max_length=LONGEST_QUERY), AfterValidator(_plain)]
Sentence = Annotated[str, Field(max_length=LONGEST_QUESTION), AfterValidator(_plain)]
PictureName = Annotated[
    str,
    Field(
        pattern=r"^([0-9]{1,15}|p[A-Za-z0-9_-]{4,12000})$",
        max_length=12_001,
        description="The `id` of a hit, or what `POST /api/pictures` answered.",
    ),
]
Folder = Annotated[str, Field(min_length=1, max_length=1000)]
Date = Annotated[str, Field(pattern=r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?$")]
Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,3}$")]
Kind = Literal["picture", "clip"]
Span = Annotated[list[float], Field(min_length=2, max_length=2)]


class SearchQuery(BaseModel):
    """What is looked for: words, pictures or both, what it is not, and where."""

    model_config = ConfigDict(extra="forbid")

    q: Words | None = Field(None, description="Words, in any language.")
    without: list[Words] = Field([], alias="not", max_length=8, description="Words it is not.")
    like: list[PictureName] = Field([], max_length=4, description="Pictures it is like.")
    unlike: list[PictureName] = Field([], max_length=4, description="Pictures it is not like.")
    folder: list[Folder] = Field([], max_length=20, description="In one of these folders.")
    kind: Kind | None = Field(None, description="Only pictures, or only clips.")
    since: Date | None = Field(None, description="Taken then or later: 2024, 2024-07, 2024-07-31.")
    until: Date | None = Field(None, description="Taken then or earlier.")
    language: Language | None = Field(None, description="Of the words, for models that ask.")
    spans: Flag = Field(False, description="All parts of a clip that fit, not the best alone.")
    limit: Number = Field(40, ge=1, le=100)
    offset: Number = Field(0, ge=0, lt=MOST_HITS)


class Item(BaseModel):
    """A picture, or a part of a clip."""

    id: int = Field(description="Goes into the addresses of its picture; never used again.")
    kind: Kind
    name: str = Field(description="Of the file.")
    folder: str = Field(description="The indexed folder and on from there.")
    taken: str = Field(description="When, in the time of the place.")
    width: int
    height: int
    seconds: float | None = Field(description="How long the clip is.")
    span: Span | None = Field(description="From which to which second of a clip.")


class Hit(Item):
    """Something that was found."""

    score: float = Field(description="The cosine with the query.")


class Answer(BaseModel):
    """What was found, the best first."""

    hits: list[Hit]
    more: bool = Field(description="Whether there are more at a higher `offset`.")


class RememberedPicture(BaseModel):
    """An uploaded picture, for `like` and `unlike`. Nothing of it is kept by the service."""

    picture: str


class FolderCount(BaseModel):
    """A folder of the library."""

    folder: str
    files: int = Field(description="At any depth; 0 where there are too many to count.")


class LibraryInfo(BaseModel):
    """What the library holds."""

    pictures: int
    clips: int
    model: str
    folders: list[FolderCount]
    explains: bool = Field(description="Whether `/why` tells where words look.")
    answers: list[str] = Field(description="Languages that `/answers` has answers in, if any.")


class WhyQuery(BaseModel):
    """What was asked for, to see where its words look."""

    model_config = ConfigDict(extra="forbid")

    q: Sentence = Field(description="Words, in a language of the model.")
    language: Language | None = Field(None, description="Of the words, for models that ask.")


class WordLook(BaseModel):
    """Where a word looks."""

    word: str
    cells: list[list[float]] = Field(
        description="What cells of the picture, row by row, are to the word: 0 nothing, 1 the most."
    )


class Why(BaseModel):
    """The first words of a query, and where each looks."""

    words: list[WordLook]


class AnswersQuery(BaseModel):
    """A question about a picture."""

    model_config = ConfigDict(extra="forbid")

    q: Sentence = Field(description="A question, in a language of the model.")
    language: Language | None = Field(None, description="To answer in this language alone.")


class GivenAnswer(BaseModel):
    """An answer, and how likely the model thinks it is."""

    text: str
    language: str
    probability: float


class Answers(BaseModel):
    """The likeliest answers, the best first."""

    answers: list[GivenAnswer]


class InterfaceLanguage(BaseModel):
    """A language of the page. Queries may be in any that the model knows."""

    code: str
    name: str = Field(description="As its speakers call it.")
    direction: Literal["ltr", "rtl"]


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str = Field(description="One sentence.")
