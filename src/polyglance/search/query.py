"""What is looked for, as one vector: words, pictures, both together, and what it is not.

Each part is a unit vector. Those that are wanted are added, what is not wanted is taken
away with half the weight, and the sum is brought to length 1: the score of a picture is
then the cosine with all that was asked for.

A query in several languages is what its parts say on average: SMALR's cross-lingual
consistency (CLC-A, section 3.4), as scores are linear in the query's vector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeGuard, cast, get_args

import numpy as np

from polyglance.encoders import Encoder, Picture
from polyglance.encoders.protocol import Vectors
from polyglance.encoders.translated_queries import consistent_scores, in_other_languages
from polyglance.errors import PolyglanceError
from polyglance.search.store import Filter, Item, Kind, Span
from polyglance.search.walking import as_place
from polyglance.text.translators import Translator

Text: TypeAlias = "str | Mapping[str, str]"
"""Words, or the same in several languages: ``{"de": "ein Hund", "fr": "un chien"}``."""

UNWANTED = 0.5
"""The weight of what is not wanted.

Of the first ten pictures of Flickr8k's test part for 15 queries such as "dog" without "grass",
captions say of 79 % that they are right without a weight, of 82 % with this one, and of 77 %
with a weight of 1, which loses the dog.
"""

_DATE = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A picture or a part of a clip, as a library knows it."""

    number: int
    """Goes by it for ever, and nothing else does."""
    path: Path
    kind: Kind
    span: Span | None
    """From which to which second of a clip."""
    taken: datetime
    """When, in the time of the place; of a file that does not say, when it was written."""
    width: int
    height: int
    seconds: float | None
    """How long the clip is."""

    @classmethod
    def of(cls, number: int, item: Item, span: Span | None, **more: Any) -> Self:
        """What is told of an item on record."""
        return cls(
            number=number,
            path=Path(item.path),
            kind=item.kind,
            span=span,
            taken=datetime.fromisoformat(item.taken),
            width=item.width,
            height=item.height,
            seconds=item.seconds,
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Piece):
    """What was found."""

    score: float
    """The cosine with the query: 1 is the same, 0 has nothing to do with it."""
    reread: float | None = None
    """What a model says that read the words beside it (`polyglance.search.reranking`), where one
    did; those hits come first and are sorted by it."""

    def to_json(self) -> dict[str, Any]:
        """The hit in plain values."""
        plain = {
            "path": str(self.path),
            "score": round(self.score, 4),
            "kind": self.kind,
            "span": self.span,
            "taken": self.taken.isoformat(),
            "width": self.width,
            "height": self.height,
            "seconds": self.seconds,
        }
        return plain if self.reread is None else plain | {"reread": round(self.reread, 4)}


def query_vector(
    encoder: Encoder,
    texts: Sequence[Text] = (),
    pictures: Sequence[Picture | Vectors] = (),
    *,
    without: Sequence[Text] = (),
    without_pictures: Sequence[Picture | Vectors] = (),
    language: str | None = None,
) -> Vectors:
    """A unit vector of what is looked for; ``language`` is that of texts that do not say.

    A picture may be given as its vector.
    """
    wanted = _encoded(encoder, texts, pictures, language)
    if not len(wanted):
        raise PolyglanceError("there is nothing to look for: give words, a picture or both")
    unwanted = _encoded(encoder, without, without_pictures, language)
    return _unit(_unit(wanted.sum(0)) - UNWANTED * unwanted.sum(0))


def in_languages(text: Text, language: str | None, translators: Sequence[Translator]) -> Text:
    """A query with its translations; each comes from the query's ``language``.

    One that is the query again is none: dictionaries leave words as they are that they lack.
    """
    if not translators:
        return text
    if not isinstance(text, str) or language is None:
        raise PolyglanceError(
            "a query is translated from one language: give it as words, and say its language"
        )
    told = in_other_languages([text], language, translators)
    source, *others = told
    return {source: text} | {
        code: "" if told[code][0].casefold() == text.casefold() else told[code][0]
        for code in others
    }


def is_vector(picture: object) -> TypeGuard[Vectors]:
    """Whether a picture is given as its vector; pixels have three axes."""
    return isinstance(picture, np.ndarray) and picture.ndim == 1


def _encoded(
    encoder: Encoder,
    texts: Sequence[Text],
    pictures: Sequence[Picture | Vectors],
    language: str | None,
) -> Vectors:
    parts = [_text_vector(encoder, text, language) for text in texts]
    parts += [picture for picture in pictures if is_vector(picture)]
    unseen = [picture for picture in pictures if not is_vector(picture)]
    if unseen:
        parts += list(encoder.encode_pictures(cast("list[Picture]", unseen)))
    return np.array(parts, np.float32).reshape(-1, encoder.width)


def _text_vector(encoder: Encoder, text: Text, language: str | None) -> Vectors:
    if isinstance(text, str):
        if not text.strip():
            raise PolyglanceError("the query is empty: give words, a picture or both")
        return _unit(encoder.encode_texts([text], language=language)[0])
    told = {language: [words] for language, words in text.items()}
    if not any(words.strip() for words in text.values()):
        raise PolyglanceError("the query is empty in all languages: give words in one at least")
    # The scores of the axes are the numbers of the query's vector itself.
    axes = np.eye(encoder.width, dtype=np.float32)
    return _unit(consistent_scores(encoder, told, axes)[:, 0])


def _unit(vector: Vectors) -> Vectors:
    unit: Vectors = vector / np.float32(max(float(np.linalg.norm(vector)), 1e-12))
    return unit


def as_filter(
    folder: str | Path | Sequence[str | Path] | None,
    kind: str | None,
    since: object,
    until: object,
) -> Filter:
    """What a search is restricted to, checked."""
    if kind is not None and kind not in get_args(Kind):
        raise PolyglanceError(f"a kind is {' or '.join(get_args(Kind))}, not {kind!r}")
    listed = [folder] if isinstance(folder, str | Path) else folder
    folders = None if listed is None else tuple(as_place(one) for one in listed)
    return Filter(folders, kind, _date(since), _date(until))  # type: ignore[arg-type]


def _date(given: object) -> str | None:
    """A date or the beginning of one, as items have it."""
    if given is None:
        return None
    text = given.isoformat() if hasattr(given, "isoformat") else str(given)
    text = text.strip().replace(" ", "T")[:19]
    first = text + "0000-01-01T00:00:00"[len(text) :]
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        datetime.fromisoformat(first)
    except ValueError:
        raise PolyglanceError(
            f"a date is given as 2024, 2024-07 or 2024-07-31, not {str(given)[:40]!r}"
        ) from None
    return text
