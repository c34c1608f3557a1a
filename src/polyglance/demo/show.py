"""The demo itself: load, encode, ask, and show what was found in the terminal and on a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from polyglance.demo.photographs import photographs
from polyglance.demo.queries import QUERIES, UNCAPTIONED, Query
from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError
from polyglance.search.showing.gallery import Gallery
from polyglance.search.showing.results import Answer, Hit
from polyglance.search.showing.sheet import write_sheet
from polyglance.search.showing.terminal import answers_table
from polyglance.vision.extraction import find_items
from polyglance.vision.pictures import read_picture

if TYPE_CHECKING:
    from rich.console import Console

HITS = 4
TOLD = 10
"""Bad files that are named; the others are only counted."""


@dataclass(frozen=True)
class Exhibit:
    """A picture to be searched and what is said of it when it is found."""

    path: Path
    name: str
    credit: str = ""
    link: str | None = None


def run(
    load: Callable[[], Encoder],
    out: Path,
    console: Console,
    *,
    folder: Path | None = None,
    words: Sequence[str] = (),
) -> list[Answer]:
    """Search the photographs, or those of a ``folder``, for the demo's queries or other ``words``.

    Answers and times go to the console, a contact sheet to ``out``.
    """
    exhibits = _of_folder(folder) if folder else _of_the_demo()
    queries = [Query(text) for text in words] or QUERIES
    start = perf_counter()
    encoder = _ready(load())
    loading, start = perf_counter() - start, perf_counter()
    gallery = Gallery.encode(list(exhibits), encoder)
    encoding = perf_counter() - start
    _tell_bad(gallery.bad, console)
    if not gallery.paths:
        raise PolyglanceError(f"{folder}: none of its {len(exhibits):,} pictures can be read")
    start = perf_counter()
    found = [gallery.find(encoder.encode_texts([query.text])[0], HITS) for query in queries]
    asking = perf_counter() - start

    judged = not folder
    answers = [
        Answer(
            query.text,
            query.language,
            [_hit(exhibits[path], score, query if judged else None) for path, score in best],
            query.meaning,
        )
        for query, best in zip(queries, found, strict=True)
    ]
    note = (
        f"{encoder.name} was loaded in {loading:.1f} s and took"
        f" {1000 * encoding / len(exhibits):.0f} ms a picture"
        f" and {1000 * asking / len(queries):.0f} ms a query."
    )
    if judged and not words:
        note += f" {_verdict(answers)}"
    asked = f"{len(queries)} {'queries' if words else 'languages'}"
    sheet = out / "sheet.html"
    out.mkdir(parents=True, exist_ok=True)
    title = f"Polyglance: {len(gallery.paths):,} photographs, {asked}"
    write_sheet(sheet, answers, title=title, note=note)
    console.print(answers_table(answers))
    console.print(note, f"The same as a page: {sheet}", sep="\n", markup=False, highlight=False)
    return answers


def count_right(answers: Sequence[Answer]) -> tuple[int, int]:
    """How many answers have a right hit first, and how many have one at all."""
    first = sum(answer.hits[0].right is True for answer in answers)
    return first, sum(any(hit.right for hit in answer.hits) for answer in answers)


def _verdict(answers: Sequence[Answer]) -> str:
    first, found = count_right(answers)
    uncaptioned = [answer for answer in answers if answer.language in UNCAPTIONED]
    uncaptioned_first, uncaptioned_found = count_right(uncaptioned)
    return (
        f"A right photograph (marked) is among the first {HITS} for {found} of the {len(answers)}"
        f" queries, and the very first for {first}; in the {len(uncaptioned)} languages that"
        f" nobody wrote captions in, for {uncaptioned_found} and {uncaptioned_first}."
    )


def _ready(encoder: Encoder) -> Encoder:
    """A model both of whose networks are open: each opens when it is first needed."""
    encoder.encode_texts(["?"])
    encoder.encode_pictures([np.zeros((1, 1, 3), np.uint8)])
    return encoder


def _of_the_demo() -> dict[Path, Exhibit]:
    return {p.path: Exhibit(p.path, p.title, p.credit, p.page) for p in photographs()}


def _of_folder(folder: Path) -> dict[Path, Exhibit]:
    found = [item for item in find_items(folder) if not item.video]
    if not found:
        raise PolyglanceError(f"{folder}: there are clips in it, but no picture")
    return {item.path: Exhibit(item.path, item.key) for item in found}


def _hit(exhibit: Exhibit, score: float, query: Query | None) -> Hit:
    """A hit, judged by the query where that says what is right."""
    return Hit(
        read_picture(exhibit.path, at_least=256),
        score,
        exhibit.name,
        right=exhibit.path.stem in query.right if query and query.right else None,
        credit=exhibit.credit,
        link=exhibit.link,
    )


def _tell_bad(bad: Sequence[str], console: Console) -> None:
    for sentence in bad[:TOLD]:
        console.print(f"skipped {sentence}", markup=False, highlight=False)
    if len(bad) > TOLD:
        console.print(f"skipped {len(bad) - TOLD:,} more")
