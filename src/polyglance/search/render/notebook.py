"""Search results and libraries as HTML for notebooks: thumbnails, scores and names."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from polyglance.errors import DataError, PolyglanceError
from polyglance.search.query import Hit, MediaRef
from polyglance.search.render.html_page import data_uri

if TYPE_CHECKING:
    from polyglance.search.library_contents import LibraryContents
    from polyglance.search.results import SearchResults

MAX_SHOWN = 24
"""Pictures shown; the others are only counted."""
SIDE = 144
"""Pixels of a thumbnail's longer side."""

_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.6rem"
_BOX = f"width:100%;height:{SIDE}px;object-fit:contain;background:rgba(127,127,127,.12)"
_NAME = "font-size:.75rem;line-height:1.3;overflow-wrap:anywhere;opacity:.8"


def results_html(library: LibraryContents, results: SearchResults) -> str:
    """Return hits as HTML: thumbnails, probabilities or scores, and names.

    Args:
        library: Where the hits were found.
        results: Best first; the first `MAX_SHOWN` are shown.

    Returns:
        A ``<div>`` that needs no style sheet.
    """
    heading = _count(len(results), "hit")
    if results.nothing_fits:
        heading = f"nothing fits well; the nearest {heading}"
    elif results.fold is not None and results.fold < len(results):
        heading += f", of which {results.fold:,} fit well"
    return _gallery(library, results, heading, len(results))


def library_html(library: LibraryContents) -> str:
    """Return a library as HTML: what it holds, and its first pictures."""
    try:
        info = library.info()
    except PolyglanceError as error:
        return f"<div>{html.escape(str(error))}</div>"
    counts = info.counts
    heading = (
        f"{info.name}: {_count(counts.pictures, 'picture')}, {_count(counts.clips, 'clip')},"
        f" model {info.model_info.model}"
    )
    shown = list(islice(library, MAX_SHOWN))
    return _gallery(library, shown, heading, counts.pictures + counts.clips)


def _gallery(library: LibraryContents, items: Sequence[MediaRef], heading: str, total: int) -> str:
    shown = items[:MAX_SHOWN]
    figures = "".join(_figure(library, item) for item in shown)
    rest = f"<p>… and {total - len(shown):,} more</p>" if total > len(shown) else ""
    return (
        f'<div><p style="font-weight:600">{html.escape(heading)}</p>'
        f'<div style="{_GRID}">{figures}</div>{rest}</div>'
    )


def _figure(library: LibraryContents, item: MediaRef) -> str:
    path, name = html.escape(str(item.path)), html.escape(item.path.name)
    caption = name
    if isinstance(item, Hit):
        caption = f"<b>{item.shown_score}</b> {name}"
    if item.span:
        caption += f" {item.span[0]:.0f}–{item.span[1]:.0f} s"
    try:
        image = library.picture(item)
        picture = f'<img style="{_BOX}" src="{data_uri(image, SIDE)}" alt="{name}">'
    except (DataError, OSError):  # the file is away or was changed
        picture = f'<div style="{_BOX}"></div>'
    return (
        f'<figure style="margin:0" title="{path}">{picture}'
        f'<figcaption style="{_NAME}">{caption}</figcaption></figure>'
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
