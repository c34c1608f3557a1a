"""``polyglance search``: search a library in any language."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.index import LibraryOption
from polyglance.cli.output import console, split_names
from polyglance.errors import PolyglanceError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from polyglance.search.library import Library
    from polyglance.search.query import Hit, QueryText
    from polyglance.search.render.results import QueryResult


def search(
    query: Annotated[str | None, typer.Argument(help="A description in any language.")] = None,
    library: LibraryOption = None,
    count: Annotated[int, typer.Option("-k", min=1, help="Number of hits (top-k).")] = 20,
    picture: Annotated[
        list[Path] | None, typer.Option(help="Similar to this picture; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Exclude what matches these words; repeatable.")
    ] = None,
    exclude_picture: Annotated[
        list[Path] | None, typer.Option(help="Unlike this picture; repeatable.")
    ] = None,
    translation: Annotated[
        list[str] | None,
        typer.Option(help="The query in another language, de:ein Hund; repeatable."),
    ] = None,
    folder: Annotated[
        list[Path] | None, typer.Option(help="Only in this folder; repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only picture or only clip.")] = None,
    since: Annotated[str | None, typer.Option(help="Taken then or later: 2024-07.")] = None,
    until: Annotated[str | None, typer.Option(help="Taken then or earlier: 2024-07-31.")] = None,
    language: Annotated[
        str | None,
        typer.Option(help="Language of the query; for --translate and for models that need it."),
    ] = None,
    translate: Annotated[
        str | None,
        typer.Option(
            help="Translate the query into these languages and combine the scores: de,fr."
        ),
    ] = None,
    translator: Annotated[
        list[str] | None,
        typer.Option(help="Translator: words, apertium or a model folder; repeatable."),
    ] = None,
    dictionaries: Annotated[
        list[str] | None, typer.Option(help="Dictionaries for words; default: Debian's FreeDict.")
    ] = None,
    cross_encoder: Annotated[
        Path | None, typer.Option(help="A trained UC2 or M3P that re-ranks the best hits.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Number of hits to re-rank.")] = 50,
    all_segments: Annotated[
        bool, typer.Option("--all-segments", help="All segments of a clip, not only the best.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="The library's model, if it has moved.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the hits as JSON.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No pictures in the terminal.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the hits to this HTML page.")] = None,
) -> None:
    """Find pictures and clips by words in any language, by a picture, or by both."""
    from polyglance.search.library import Library

    text = _with_translations(query, translation or (), language)
    if translate and translation:
        raise PolyglanceError("--translation and --translate exclude each other: give one of them")
    if translate:
        text = _translate(query, language, translate, translator or (), dictionaries)
    with Library(library, model=model, reranker=cross_encoder) as opened:
        hits = opened.search(
            text,
            picture=picture,
            exclude=exclude,
            exclude_picture=exclude_picture,
            k=count,
            folder=folder,
            kind=kind,
            since=since,
            until=until,
            language=language,
            all_segments=all_segments,
            candidates=candidates,
        )
        title = " + ".join([*([query] if query else []), *(path.name for path in picture or ())])
        excluded = [*(exclude or ()), *(path.name for path in exclude_picture or ())]
        title += "".join(f" − {name}" for name in excluded)
        if html:
            from polyglance.search.render.html_page import write_html_page

            result = _render(opened, title, language, hits)
            write_html_page(html, [result], title="Polyglance", note=f"{len(hits):,} hits")
            print(f"{html}: {len(hits):,} hits", file=sys.stderr)
        if as_json:
            print(json.dumps([hit.to_json() for hit in hits], ensure_ascii=False, indent=2))
        elif not hits:
            print("nothing found: try other words or fewer filters")
        elif not plain and console().is_terminal and console().color_system:
            from polyglance.search.render.terminal import results_table

            console().print(results_table([_render(opened, title, language, hits)]))
        else:
            console().print(_table(hits), soft_wrap=True)


def _with_translations(
    query: str | None, translations: Sequence[str], language: str | None
) -> QueryText | None:
    """Return the query, or a dict of it and its translations by language."""
    if not translations:
        return query
    if query is None or language is None:
        raise PolyglanceError("--translation needs the query and its --language")
    texts = {language: query}
    for text in translations:
        code, colon, words = text.partition(":")
        if not colon or code.strip() in texts:
            raise PolyglanceError(
                f"--translation takes each language once, such as de:ein Hund, not {text!r}"
            )
        texts[code.strip()] = words.strip()
    return texts


def _translate(
    query: str | None,
    language: str | None,
    targets: str,
    translators: Sequence[str],
    dictionaries: Sequence[str] | None,
) -> QueryText:
    """Translate the query, and print its translations."""
    from polyglance.search.query import add_translations
    from polyglance.text.dictionary_files import FREEDICT_FOLDER
    from polyglance.text.translation.registry import open_first_translator

    if query is None or language is None:
        raise PolyglanceError("--translate needs a query and its --language, such as en")
    if not translators:
        raise PolyglanceError("--translate needs --translator: words, apertium, or a model folder")
    opened = [
        open_first_translator(
            translators, language, target, dictionaries=dictionaries or (FREEDICT_FOLDER,)
        )
        for target in split_names(targets) or ()
    ]
    texts = add_translations(query, language, opened)
    for code, words in texts.items() if not isinstance(texts, str) else ():
        print(f"{code}: {printable(words) or '(no translation)'}", file=sys.stderr)
    return texts


def _table(hits: Sequence[Hit]) -> Table:
    from rich.table import Table
    from rich.text import Text as Line

    reranked = any(hit.rerank_score is not None for hit in hits)
    table = Table(*(["rerank"] if reranked else []), "score", "file", box=None, pad_edge=False)
    for hit in hits:
        rerank_cell = [""] if hit.rerank_score is None else [f"{hit.rerank_score:.3f}"]
        name = Line(_name(hit), overflow="ignore", no_wrap=True)
        table.add_row(*(rerank_cell if reranked else []), f"{hit.score:.3f}", name)
    return table


def _render(library: Library, title: str, language: str | None, hits: Sequence[Hit]) -> QueryResult:
    """Return hits with their pictures; unreadable ones are grey."""
    from PIL import Image

    from polyglance.errors import DataError
    from polyglance.search.render.results import QueryResult, RenderedHit

    rendered = []
    for hit in hits:
        try:
            picture = library.picture(hit)
        except DataError:
            picture = Image.new("RGB", (64, 64), "grey")
        rendered.append(RenderedHit(picture, hit.score, _name(hit)))
    return QueryResult(title, language, rendered)


def _name(hit: Hit) -> str:
    """Return the path relative to the current folder, with the segment of a clip."""
    path = hit.path
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    name = printable(str(path))
    return f"{name} {_format_time(hit.span[0])}–{_format_time(hit.span[1])}" if hit.span else name


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
