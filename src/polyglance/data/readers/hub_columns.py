"""Captions, ids and splits in the columns of a table, as on the Hugging Face hub.

| column | content |
|---|---|
| ``caption``, ``captions``, ``text``, ``sentences``, ``description``, ``alt_text`` | captions |
| ``caption_0``, ``caption_1`` ... | one caption each |
| ``caption_de``, ``text_fr``, or a bare code: ``de`` | captions in that language |
| ``language`` or ``lang`` | the language of the others in the row |
| ``id`` or ``image_id``, ``split`` | as they say |

Captions are a text, a list of texts, or texts by language. Other columns are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from polyglance.data.readers.base import ReadOptions, normalise_split, split_in_name
from polyglance.data.readers.validation import check_name, check_string
from polyglance.languages import is_language_code, normalise_language
from polyglance.records import Record

_CAPTIONS = re.compile(
    r"(?:captions?|texts?|sentences?|descriptions?|alt_text)(?:[_-]([A-Za-z]{2,3}|\d+))?",
    re.IGNORECASE,
)
_INNER = ("raw", "text", "caption")
"""Keys of a caption that is an object."""


def is_used(column: str) -> bool:
    """Return whether a column may say something of a record."""
    return _language_of(column, "en") is not None or column in (
        "language", "lang", "id", "image_id", "split"
    )  # fmt: skip


def make_record(
    row: Mapping[str, Any], image: str | None, where: PurePosixPath, options: ReadOptions
) -> Record:
    """Return the record of a row; a `ValueError` says what was expected.

    Args:
        row: Values by column.
        image: Path of the picture.
        where: Path of the table or picture in the data set, which may name a split.
        options: What the files do not say.
    """
    said = row.get("language") or row.get("lang")
    default = options.language or "en"
    if isinstance(said, str) and is_language_code(said):
        default = normalise_language(said)
    captions: dict[str, tuple[str, ...]] = {}
    for column, value in row.items():
        if (language := _language_of(column, default)) is not None:
            for code, text in _texts(value, language, column):
                captions[code] = (*captions.get(code, ()), text)
    identity = row.get("id", row.get("image_id"))
    split = row.get("split")
    return Record(
        image=image,
        captions=captions,
        split=normalise_split(check_name(split, "'split'")) if split else _split(where, options),
        id=None if identity is None else check_name(identity, "'id'"),
    )


def _language_of(column: str, default: str) -> str | None:
    """Return the language of a column of captions, or None for other columns."""
    if match := _CAPTIONS.fullmatch(column):
        ending = match[1]
        if ending is None or ending.isdigit():
            return default
        # "caption_id" is a number more often than Indonesian.
        is_code = ending.lower() != "id" and is_language_code(ending.lower())
        return normalise_language(ending.lower()) if is_code else None
    if len(column) == 2 and column.islower() and column != "id" and is_language_code(column):
        return normalise_language(column)
    return None


def _texts(value: object, language: str, column: str) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if isinstance(value, list):
        for one in value:
            yield from _texts(one, language, column)
    elif isinstance(value, dict):
        inner = next((value[key] for key in _INNER if key in value), None)
        if inner is not None:
            yield from _texts(inner, language, column)
            return
        for code, texts in value.items():
            if is_language_code(code):
                yield from _texts(texts, normalise_language(code), column)
    elif text := check_string(value, f"{column!r}").strip():
        yield language, text


def _split(where: PurePosixPath, options: ReadOptions) -> str | None:
    """Return the split that a path names, its nearest part first."""
    for part in reversed(where.parts):
        if (split := split_in_name(PurePosixPath(part))) is not None:
            return split
    return options.split
