"""Request and response schemas of the API, from which the OpenAPI document is made."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MAX_QUERY_CHARS = 1000
MAX_QUESTION_CHARS = 300
"""Of texts for models that read a sentence and a picture together."""
MAX_HITS = 1000
"""How many hits of a search can be paged through."""


def _clean_text(text: str) -> str:
    """Put a text on one line; refuse empty ones and control characters."""
    text = " ".join(text.split())
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise ValueError("contains control characters")
    if not text:
        raise ValueError("is empty: give words, or leave it out")
    return text


def _digits(value: Any) -> Any:
    """Accept digits only; Python would also read `+5`, `5_0` and surrounding blanks.

    Negative numbers pass, since the bounds give the better message.
    """
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+", value):
        raise ValueError("is not a whole number")
    return value


def _true_or_false(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value


Integer = Annotated[int, BeforeValidator(_digits)]
ItemId = Annotated[Integer, Path(ge=1, lt=2**53, description="The `id` of a hit.")]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
QueryText = Annotated[str, Field(max_length=MAX_QUERY_CHARS), AfterValidator(_clean_text)]
QuestionText = Annotated[str, Field(max_length=MAX_QUESTION_CHARS), AfterValidator(_clean_text)]
PictureRef = Annotated[
    str,
    Field(
        pattern=r"^([0-9]{1,15}|p[A-Za-z0-9_-]{4,12000})$",
        max_length=12_001,
        description="The `id` of a hit, or the `picture` that `POST /api/pictures` returned.",
    ),
]
Folder = Annotated[str, Field(min_length=1, max_length=1000)]
Date = Annotated[str, Field(pattern=r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?$")]
Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,3}$")]
Kind = Literal["picture", "clip"]
Span = Annotated[list[float], Field(min_length=2, max_length=2)]


class SearchQuery(BaseModel):
    """A search: words, pictures or both, what to exclude, and filters."""

    model_config = ConfigDict(extra="forbid")

    q: QueryText | None = Field(None, description="Words, in any language.")
    without: list[QueryText] = Field([], alias="not", max_length=8, description="Words to exclude.")
    like: list[PictureRef] = Field([], max_length=4, description="Similar to these pictures.")
    unlike: list[PictureRef] = Field([], max_length=4, description="Unlike these pictures.")
    folder: list[Folder] = Field([], max_length=20, description="In one of these folders.")
    kind: Kind | None = Field(None, description="Only pictures, or only clips.")
    since: Date | None = Field(None, description="Taken then or later: 2024, 2024-07, 2024-07-31.")
    until: Date | None = Field(None, description="Taken then or earlier.")
    language: Language | None = Field(
        None, description="Language of the words, for models that need it."
    )
    spans: Flag = Field(False, description="All matching segments of a clip, not only the best.")
    limit: Integer = Field(40, ge=1, le=100)
    offset: Integer = Field(0, ge=0, lt=MAX_HITS)


class Item(BaseModel):
    """A picture, or a segment of a clip."""

    id: int = Field(description="Permanent id; never reused.")
    kind: Kind
    name: str = Field(description="File name.")
    folder: str = Field(description="The indexed folder and the path below it.")
    taken: str = Field(description="Local date and time.")
    width: int
    height: int
    seconds: float | None = Field(description="Duration of the clip.")
    span: Span | None = Field(description="Start and end of the segment in seconds.")


class Hit(Item):
    """A search result."""

    score: float = Field(description="Cosine similarity to the query.")


class SearchResponse(BaseModel):
    """Search results, the best first."""

    hits: list[Hit]
    more: bool = Field(description="Whether there are more at a higher `offset`.")


class UploadedPicture(BaseModel):
    """An uploaded picture, for `like` and `unlike`. The server does not store it."""

    picture: str


class FolderCount(BaseModel):
    """A folder of the library."""

    folder: str
    files: int = Field(description="At any depth; 0 if the library is too large to count.")


class LibraryInfo(BaseModel):
    """The contents of the library."""

    pictures: int
    clips: int
    model: str
    folders: list[FolderCount]
    explains: bool = Field(description="Whether `/why` is available.")
    answers: list[str] = Field(description="Languages of `/answers`; empty if not available.")


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


class InterfaceLanguage(BaseModel):
    """A language of the page. Queries may be in any language of the model."""

    code: str
    name: str = Field(description="The language's own name.")
    direction: Literal["ltr", "rtl"]


class Problem(BaseModel):
    """Why a request failed."""

    error: str = Field(description="One sentence.")
