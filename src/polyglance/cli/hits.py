"""Print the hits of a search: as lines, with small pictures, as paths, JSON or an HTML page."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.cli.output import console
from polyglance.errors import DataError, PolyglanceError, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from polyglance.search.library import Library
    from polyglance.search.query import Hit
    from polyglance.search.render.results import QueryResult
    from polyglance.search.results import SearchResults
    from polyglance.search.signals.understanding import Understood

_PAGE_SUFFIXES = (".html", ".htm")
_NO_LINKS = ("dumb", "linux", "vt100", "vt220")
"""Terminals that print the code of a link."""


def check_page_name(path: Path) -> None:
    """Raise an error unless a file may become a page: by its name, and if it exists, our own."""
    from polyglance.search.render.html_page import is_own_page

    if path.suffix.lower() not in _PAGE_SUFFIXES:
        raise PolyglanceError(
            f"{printable(str(path))} would be a web page: give a name that ends in .html"
        )
    if path.exists() and not is_own_page(path):
        raise PolyglanceError(
            f"{printable(str(path))} exists and is no page of Polyglance: give another name"
        )


def write_page(
    path: Path, library: Library, title: str, language: str | None, hits: SearchResults
) -> None:
    """Write hits as a page with names, links and tooltips.

    Args:
        path: The page.
        library: Where the hits were found.
        title: The query.
        language: Its language, if it is known.
        hits: Best first.
    """
    from polyglance.search.render.html_page import write_html_page

    result = _render(library, title, language, hits)
    note = " · ".join([f"{len(hits):,} hits", *_describe(hits)])
    write_html_page(path, [result], title="Polyglance", note=note)
    print(f"{printable(str(path))}: {len(hits):,} hits", file=sys.stderr)


def print_understood(understood: Understood) -> None:
    """Print which words of a query became a filter, and how to undo that."""
    for part in understood.parts:
        words = "" if part.label == part.text else f" ({printable(part.text)})"
        print(
            f"{part.signal}: {printable(part.label)}{words}; --off {part.signal}s searches without",
            file=sys.stderr,
        )


def _describe(results: SearchResults) -> list[str]:
    """Return how a query was understood, for a page."""
    lines = [f"{part.signal}: {printable(part.label)}" for part in results.understood]
    if results.searched_for is not None:
        lines.append(f"searched for: {printable(results.searched_for)}")
    if results.excluded:
        lines.append(f"without: {', '.join(map(printable, results.excluded))}")
    return lines


def print_query(results: SearchResults) -> None:
    """Print how a query was corrected and what it excludes, and whether anything fits."""
    if results.searched_for is not None:
        text = printable(results.searched_for)
        print(f"searched for: {text} (--no-correct searches as typed)", file=sys.stderr)
    if results.excluded:
        parts = ", ".join(map(printable, results.excluded))
        print(f"without: {parts} (--literal searches as typed)", file=sys.stderr)
    if results.nothing_fits:
        print("nothing fits well; the nearest:", file=sys.stderr)


def print_json(hits: Sequence[Hit]) -> None:
    """Print hits as a JSON list."""
    print(json.dumps([hit.to_json() for hit in hits], ensure_ascii=False, indent=2))


def print_paths(paths: Sequence[Path], end: str = "\n") -> None:
    """Print each path once, to the byte as the system spells it; a terminal gets no controls."""
    if sys.stdout.isatty():
        for path in dict.fromkeys(paths):
            print(printable(str(path)))
        return
    content = b"".join(os.fsencode(path) + end.encode() for path in dict.fromkeys(paths))
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def print_hits(
    library: Library, title: str, language: str | None, hits: SearchResults, *, plain: bool
) -> None:
    """Print hits as lines that end in the whole path, in a terminal with colours below pictures.

    Args:
        library: Where they were found.
        title: The query.
        language: Its language, if it is known.
        hits: Best first.
        plain: No pictures.
    """
    terminal = console()
    pictures = not plain and terminal.is_terminal and bool(terminal.color_system)
    if pictures:
        from polyglance.search.render.terminal import results_table

        terminal.print(results_table([_render(library, title, language, hits)], numbered=True))
    for line in _lines(hits, terminal, numbered=pictures):
        terminal.print(line, soft_wrap=True)


def supports_links(terminal: Console) -> bool:
    """Return whether links (OSC 8) may be printed; FORCE_HYPERLINK=0 or 1 decides otherwise."""
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced:
        return forced != "0"
    return terminal.is_terminal and os.environ.get("TERM", "dumb") not in _NO_LINKS


def path_text(path: Path, terminal: Console) -> Text:
    """Return a path for display, relative to the current folder, as a link if that is possible."""
    from rich.text import Text

    name = Text(display_path(path))
    if supports_links(terminal):
        name.stylize(f"link {path.as_uri()}")
    return name


def display_path(path: Path) -> str:
    """Return a path relative to the current folder, without characters that cannot be printed."""
    here = Path.cwd()
    return printable(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _lines(hits: SearchResults, terminal: Console, *, numbered: bool) -> list[Text]:
    """Return a line for each hit, below a heading; the path is last, so that nothing cuts it."""
    from rich.text import Text

    reranked = any(hit.rerank_score is not None for hit in hits)
    judged = any(hit.probability is not None for hit in hits)
    by_date = any(hit.by_date for hit in hits)
    score = f"{'taken':10}" if by_date else " match" if judged else "cosine"
    heading = f"{'rerank  ' if reranked else ''}{score}  file"
    width = len(str(len(hits)))
    lines = [Text(f"{'':{width}}  {heading}" if numbered else heading, style="dim")]
    for number, hit in enumerate(hits, start=1):
        if number - 1 == hits.fold:
            lines.append(Text("less certain:", style="dim"))
        cells = [f"{number:>{width}}"] if numbered else []
        if reranked:
            cells.append("      " if hit.rerank_score is None else f"{hit.rerank_score:6.3f}")
        only_cosine = hit.probability is None and not hit.by_date
        cells.append(f"{hit.score:6.3f}" if only_cosine else f"{hit.shown_score:>6}")
        line = Text("  ".join([*cells, ""]))
        if hit.span:
            line.append(f"{_format_span(hit)}  ")
        line.append(_format_reasons(hit), style="dim")
        lines.append(line + path_text(hit.path, terminal))
    return lines


def _format_reasons(hit: Hit) -> str:
    """Return what else speaks for a hit, and how many are stacked under it, in brackets."""
    found = _reasons(hit)
    return f"[{found}]  " if found else ""


def _reasons(hit: Hit) -> str:
    """Return what else than its pixels speaks for a hit, and how many are stacked under it."""
    found = [
        f"{one.signal}: {printable(one.text or '')}"
        for one in hit.why
        if one.signal != "picture" and one.score > 0
    ]
    if hit.stack:
        found.append(f"and {len(hit.stack)} like it")
    return "; ".join(found)


def _render(library: Library, title: str, language: str | None, hits: SearchResults) -> QueryResult:
    """Return hits with their pictures; unreadable ones are grey."""
    from PIL import Image

    from polyglance.search.render.results import QueryResult, RenderedHit

    rendered = []
    for hit in hits:
        try:
            picture = library.picture(hit)
        except DataError:
            picture = Image.new("RGB", (64, 64), "grey")
        name = " ".join(filter(None, (printable(hit.path.name), _format_span(hit))))
        rendered.append(
            RenderedHit(
                picture,
                hit.score,
                name,
                file=hit.path,
                taken=hit.taken,
                label=hit.shown_score,
                reasons=_reasons(hit),
            )
        )
    return QueryResult(title, language, rendered, fold=hits.fold)


def _format_span(hit: Hit) -> str:
    return f"{_format_time(hit.span[0])}–{_format_time(hit.span[1])}" if hit.span else ""


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
