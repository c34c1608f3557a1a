"""The demo: encode pictures, run queries, and show the hits in the terminal and on a page."""

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
from polyglance.search.gallery import Gallery
from polyglance.search.render.html_page import write_html_page
from polyglance.search.render.results import QueryResult, RenderedHit
from polyglance.search.render.terminal import results_table
from polyglance.vision.extraction import find_items
from polyglance.vision.pictures import read_picture

if TYPE_CHECKING:
    from rich.console import Console

NUM_HITS = 4
MAX_NAMED = 10
"""Bad files that are named; the others are only counted."""


@dataclass(frozen=True)
class DemoPicture:
    """A picture to search, and what is shown beside it."""

    path: Path
    name: str
    credit: str = ""
    link: str | None = None


def run_demo(
    load: Callable[[], Encoder],
    out: Path,
    console: Console,
    *,
    folder: Path | None = None,
    texts: Sequence[str] = (),
) -> list[QueryResult]:
    """Search pictures, print hits and times, and write them to a page.

    Args:
        load: Loads the model.
        out: Folder of the page ``sheet.html``.
        console: Where hits and times are printed.
        folder: Pictures to search instead of the demo's photographs.
        texts: Queries to run instead of the demo's.
    """
    pictures = _pictures_of_folder(folder) if folder else _demo_pictures()
    queries = [Query(text) for text in texts] or QUERIES
    start = perf_counter()
    encoder = _warm_up(load())
    load_seconds, start = perf_counter() - start, perf_counter()
    gallery = Gallery.encode(list(pictures), encoder)
    encode_seconds = perf_counter() - start
    _print_bad_files(gallery.bad, console)
    if not gallery.paths:
        raise PolyglanceError(f"{folder}: none of its {len(pictures):,} pictures can be read")
    start = perf_counter()
    best = [gallery.search(encoder.encode_texts([query.text])[0], NUM_HITS) for query in queries]
    query_seconds = perf_counter() - start

    judged = not folder
    results = [
        QueryResult(
            query.text,
            query.language,
            [_hit(pictures[path], score, query if judged else None) for path, score in hits],
            query.english,
        )
        for query, hits in zip(queries, best, strict=True)
    ]
    note = (
        f"{encoder.name} was loaded in {load_seconds:.1f} s and took"
        f" {1000 * encode_seconds / len(pictures):.0f} ms a picture"
        f" and {1000 * query_seconds / len(queries):.0f} ms a query."
    )
    if judged and not texts:
        note += f" {_summary(results)}"
    counted = f"{len(queries)} {'queries' if texts else 'languages'}"
    page = out / "sheet.html"
    out.mkdir(parents=True, exist_ok=True)
    title = f"Polyglance: {len(gallery.paths):,} photographs, {counted}"
    write_html_page(page, results, title=title, note=note)
    console.print(results_table(results))
    console.print(note, f"The same as a page: {page}", sep="\n", markup=False, highlight=False)
    return results


def count_relevant(results: Sequence[QueryResult]) -> tuple[int, int]:
    """Count the results whose first hit is relevant, and those with any relevant hit."""
    first = sum(result.hits[0].is_correct is True for result in results)
    return first, sum(any(hit.is_correct for hit in result.hits) for result in results)


def _summary(results: Sequence[QueryResult]) -> str:
    first, found = count_relevant(results)
    uncaptioned = [result for result in results if result.language in UNCAPTIONED]
    uncaptioned_first, uncaptioned_found = count_relevant(uncaptioned)
    return (
        f"A right photograph (marked) is among the first {NUM_HITS} for {found} of the"
        f" {len(results)} queries, and the very first for {first}; in the {len(uncaptioned)}"
        f" languages without captions in training, for {uncaptioned_found} and"
        f" {uncaptioned_first}."
    )


def _warm_up(encoder: Encoder) -> Encoder:
    """Load both networks now; each is loaded at its first use."""
    encoder.encode_texts(["?"])
    encoder.encode_pictures([np.zeros((1, 1, 3), np.uint8)])
    return encoder


def _demo_pictures() -> dict[Path, DemoPicture]:
    return {p.path: DemoPicture(p.path, p.title, p.credit, p.page) for p in photographs()}


def _pictures_of_folder(folder: Path) -> dict[Path, DemoPicture]:
    items = [item for item in find_items(folder) if not item.video]
    if not items:
        raise PolyglanceError(f"{folder} contains clips but no picture: name another folder")
    return {item.path: DemoPicture(item.path, item.key) for item in items}


def _hit(picture: DemoPicture, score: float, query: Query | None) -> RenderedHit:
    """Return a hit to show, marked as relevant or not if the query says which pictures are."""
    return RenderedHit(
        read_picture(picture.path, min_side=256),
        score,
        picture.name,
        is_correct=picture.path.stem in query.relevant if query and query.relevant else None,
        credit=picture.credit,
        link=picture.link,
    )


def _print_bad_files(bad: Sequence[str], console: Console) -> None:
    for sentence in bad[:MAX_NAMED]:
        console.print(f"skipped {sentence}", markup=False, highlight=False)
    if len(bad) > MAX_NAMED:
        console.print(f"skipped {len(bad) - MAX_NAMED:,} more")
