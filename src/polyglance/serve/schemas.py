"""Request and response schemas of the API, from which the OpenAPI document is made."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MAX_QUERY_CHARS = 1000
MAX_QUESTION_CHARS = 300
"""Of texts for models that read a sentence and a picture together."""
MAX_PAGE = 500
"""Items of a page."""
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


def _decimal(value: Any) -> Any:
    """Accept decimal numbers only; Python would also read `nan`, `1_0` and blanks."""
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,12})?", value):
        raise ValueError("is not a number")
    return value


def _true_or_false(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value


Integer = Annotated[int, BeforeValidator(_digits)]
Number = Annotated[float, BeforeValidator(_decimal)]
Weight = Annotated[Number, Field(ge=0.01, le=100)]
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
FacetName = Annotated[str, Field(min_length=1, max_length=300)]
Snapshot = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
Span = Annotated[list[float], Field(min_length=2, max_length=2)]


class FilterQuery(BaseModel):
    """What to leave out; all conditions must hold, of a list one of its values."""

    model_config = ConfigDict(extra="forbid")

    folder: list[Folder] = Field([], max_length=20, description="In one of these folders.")
    kind: Kind | None = Field(None, description="Only pictures, or only clips.")
    since: Date | None = Field(None, description="Taken then or later: 2024, 2024-07, 2024-07-31.")
    until: Date | None = Field(None, description="Taken then or earlier.")
    camera: list[FacetName] = Field([], max_length=20, description="Taken with one of these.")
    place: list[FacetName] = Field([], max_length=20, description="Taken at one of these.")


class ViewQuery(FilterQuery):
    """A list of items: what it holds, and in which order."""

    sort: Literal["taken", "added"] = Field(
        "taken", description="The newest first, by when it was taken or added to the library."
    )
    snapshot: Snapshot | None = Field(
        None, description="Continue this list, if the server still knows it."
    )


class TimelineQuery(ViewQuery):
    """What to count by date."""

    unit: Literal["year", "month", "day"] = "month"


class ItemsQuery(ViewQuery):
    """A page of a list of items."""

    offset: Integer = Field(0, ge=0, lt=2**31)
    limit: Integer = Field(100, ge=1, le=MAX_PAGE)


class FoldersQuery(BaseModel):
    """Which folders to list."""

    model_config = ConfigDict(extra="forbid")

    parent: Folder | None = Field(None, description="Those in this folder; default: the indexed.")


class SimilarQuery(BaseModel):
    """How many similar items to return."""

    model_config = ConfigDict(extra="forbid")

    limit: Integer = Field(12, ge=1, le=100)


class SearchQuery(FilterQuery):
    """A search: words, pictures or both, what to exclude, and filters."""

    q: QueryText | None = Field(None, description="Words, in any language.")
    without: list[QueryText] = Field([], alias="not", max_length=8, description="Words to exclude.")
    like: list[PictureRef] = Field([], max_length=4, description="Similar to these pictures.")
    unlike: list[PictureRef] = Field([], max_length=4, description="Unlike these pictures.")
    language: Language | None = Field(
        None, description="Language of the words, for models that need it."
    )
    like_weight: list[Weight] = Field(
        [], max_length=4, description="How much each of `like` counts, beside 1 for the words."
    )
    unlike_weight: list[Weight] = Field([], max_length=4, description="The same of `unlike`.")
    min_score: Number | None = Field(
        None,
        ge=0,
        le=1,
        description="Leave out hits with a lower probability, or cosine where there is none.",
    )
    off: list[Literal["names", "dates", "places", "text"]] = Field(
        [], max_length=4, description="Signals to search without."
    )
    correct: Flag = Field(True, description="Correct typing mistakes in `q`.")
    literal: Flag = Field(False, description="Take `q` as it is: no exclusions, weights and such.")
    stack: Flag = Field(
        False, description="Of copies, near-duplicates and bursts return the best alone."
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
    taken: datetime = Field(
        description="The camera's date and time, with the offset from UTC of the server's zone."
    )
    width: int
    height: int
    seconds: float | None = Field(description="Duration of the clip.")
    span: Span | None = Field(description="Start and end of the segment in seconds.")


class Reason(BaseModel):
    """What speaks for a hit."""

    signal: str = Field(description="picture, name, date, place or text.")
    text: str | None = Field(description="The words of the query that it answers; null for all.")
    score: float = Field(description="How much it adds to the rank.")


class Hit(Item):
    """A search result."""

    score: float | None = Field(
        description="Cosine similarity to the query; null where the query is a date or place alone,"
        " whose hits are sorted by date."
    )
    probability: float | None = Field(
        description="Of a match, where the model is calibrated for such queries."
    )
    why: list[Reason] = Field(description="What speaks for it, the strongest first.")
    stack: int = Field(description="Files that are stacked with it, itself included.")


class Understood(BaseModel):
    """Parts of the query that were taken for something else than what is to be seen."""

    since: str | None
    until: str | None
    place: str | None
    without: list[str] = Field(description="What the words exclude.")


class SearchResponse(BaseModel):
    """Search results, the best first; of a date or place alone, the newest."""

    hits: list[Hit]
    more: bool = Field(description="Whether there are more at a higher `offset`.")
    fold: int | None = Field(
        description="How many hits from the beginning of the list fit well, as far as it is known"
        " up to this page; others are less certain. Null if the query has no probabilities."
    )
    fits: bool | None = Field(description="False if nothing fits well.")
    corrected: str | None = Field(description="The words as they were corrected, if they were.")
    understood: Understood | None


class UploadedPicture(BaseModel):
    """An uploaded picture, for `like` and `unlike`. The server does not store it."""

    picture: str


class RankedItem(Item):
    """An item of a list."""

    rank: int = Field(description="Its offset in the list.")


class ItemPage(BaseModel):
    """A page of a list of items. Items that were removed since the snapshot are missing."""

    snapshot: str = Field(description="Names the list; pass it on to get pages that fit together.")
    total: int
    offset: int
    items: list[RankedItem]


class TimelineBucket(BaseModel):
    """The items of a year, month or day."""

    date: str = Field(description="2024, 2024-07 or 2024-07-31; empty if not sorted by date.")
    count: int
    offset: int = Field(description="Of the first of them in the list.")
    shapes: str = Field(
        description="A character for the aspect ratio of each item, of `A-Za-z0-9-_`: the one at"
        " 32 is a square, and 16 further twice as wide as high."
    )


class Timeline(BaseModel):
    """How many items there are of each year, month or day, the newest first."""

    snapshot: str = Field(description="Names the list that the offsets are of.")
    total: int
    buckets: list[TimelineBucket]


class FolderEntry(BaseModel):
    """A folder, and what it holds at any depth."""

    folder: str = Field(description="Its whole display name, as in filters.")
    name: str = Field(description="The last part of it.")
    files: int
    folders: int = Field(description="Folders directly in it.")
    cover: int | None = Field(description="The `id` of its newest item.")


class FolderList(BaseModel):
    """Folders, ordered by name."""

    folders: list[FolderEntry]


class FacetCount(BaseModel):
    """A value of a filter, and how many files have it."""

    name: str
    files: int


class Facets(BaseModel):
    """Values that filters can have, the most frequent first."""

    cameras: list[FacetCount]
    places: list[FacetCount]
    years: list[FacetCount] = Field(description="The newest first.")


class Neighbors(BaseModel):
    """The place of an item in a list, and the items beside it."""

    snapshot: str
    total: int
    rank: int | None = Field(description="Null if the item is not in the list.")
    previous: Item | None
    next: Item | None


class ItemDetails(Item):
    """All that is known of an item; null where it is not known."""

    bytes: int = Field(description="Size of the file.")
    added: datetime | None = Field(description="When it was added to the library.")
    camera: str | None
    place: str | None
    latitude: float | None
    longitude: float | None
    text: str | None = Field(description="Text inside the picture.")


class StackedItems(BaseModel):
    """Copies, near-duplicates and the rest of a burst, the item itself first."""

    items: list[Item]


class SimilarItems(BaseModel):
    """Items that look alike, the most similar first."""

    hits: list[Hit]


class FolderCount(BaseModel):
    """A folder of the library."""

    folder: str
    files: int = Field(description="At any depth; 0 if the library is too large to count.")


class LibraryInfo(BaseModel):
    """The contents of the library."""

    pictures: int
    clips: int
    library: str = Field(description="Random id of the library.")
    model: str
    folders: list[FolderCount]
    manages: bool = Field(
        description="Whether you are on the machine itself, where folders can be added."
    )
    explains: bool = Field(description="Whether `/why` is available.")
    answers: list[str] = Field(description="Languages of `/answers`; empty if not available.")


class InterfaceLanguage(BaseModel):
    """A language of the page. Queries may be in any language of the model."""

    code: str
    name: str = Field(description="The language's own name.")
    direction: Literal["ltr", "rtl"]


class Problem(BaseModel):
    """Why a request failed."""

    error: str = Field(description="One sentence.")
