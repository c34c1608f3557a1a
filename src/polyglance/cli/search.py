"""``polyglance search``: what is in a library, in any language."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.index import LibraryOption
from polyglance.cli.output import console, names
from polyglance.errors import PolyglanceError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from polyglance.search.library import Library
    from polyglance.search.query import Hit, Text
    from polyglance.search.render.results import Answer


def search(
    query: Annotated[str | None, typer.Argument(help="What to look for, in any language.")] = None,
    library: LibraryOption = None,
    count: Annotated[int, typer.Option("-k", min=1, help="How many hits.")] = 20,
    picture: Annotated[
        list[Path] | None, typer.Option(help="Like this picture; again for more.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--not", help="Without this; again for more.")
    ] = None,
    without_picture: Annotated[
        list[Path] | None, typer.Option("--not-picture", help="Unlike this; again for more.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="The same in another language, de:ein Hund; again for more."),
    ] = None,
    folder: Annotated[
        list[Path] | None, typer.Option(help="Only in this folder; again for more.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only picture, or only clip.")] = None,
    since: Annotated[str | None, typer.Option(help="Taken then or later: 2024-07.")] = None,
    until: Annotated[str | None, typer.Option(help="Taken then or earlier: 2024-07-31.")] = None,
    language: Annotated[
        str | None, typer.Option(help="The query's: to translate it, and for models of words.")
    ] = None,
    translate: Annotated[
        str | None,
        typer.Option(help="Ask in these languages too, all deciding together: de,fr."),
    ] = None,
    translator: Annotated[
        list[str] | None,
        typer.Option(
            help="What translates: words, apertium or a model's folder; again for others."
        ),
    ] = None,
    dictionaries: Annotated[
        list[str] | None, typer.Option(help="Where words are looked up. Else Debian's FreeDict.")
    ] = None,
    reranker: Annotated[
        Path | None, typer.Option(help="A trained UC2 or M3P that reads the best hits again.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="How many hits are read again.")] = 50,
    every_span: Annotated[
        bool, typer.Option("--every-span", help="All parts of a clip, not the best alone.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="Where the library's model is now.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the hits as JSON.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No pictures in the terminal.")] = False,
    sheet: Annotated[Path | None, typer.Option(help="Write a page with the hits, .html.")] = None,
) -> None:
    """Find pictures and clips by words in any language, by a picture, or by both."""
    from polyglance.search.library import Library

    text = _in_languages(query, also or (), language)
    if translate and also:
        raise PolyglanceError("--also says what --translate would: give one of them")
    if translate:
        text = _translated(query, language, translate, translator or (), dictionaries)
    with Library(library, model=model, reranker=reranker) as opened:
        hits = opened.search(
            text,
            picture=picture,
            without=without,
            without_picture=without_picture,
            k=count,
            folder=folder,
            kind=kind,
            since=since,
            until=until,
            language=language,
            every_span=every_span,
            candidates=candidates,
        )
        asked = " + ".join([*([query] if query else []), *(path.name for path in picture or ())])
        unwanted = [*(without or ()), *(path.name for path in without_picture or ())]
        asked += "".join(f" − {one}" for one in unwanted)
        if sheet:
            from polyglance.search.render.html_page import write_sheet

            answer = _answer(opened, asked, language, hits)
            write_sheet(sheet, [answer], title="Polyglance", note=f"{len(hits):,} hits")
            print(f"{sheet}: {len(hits):,} hits", file=sys.stderr)
        if as_json:
            print(json.dumps([hit.to_json() for hit in hits], ensure_ascii=False, indent=2))
        elif not hits:
            print("nothing was found: is there anything of this kind in the library?")
        elif not plain and console().is_terminal and console().color_system:
            from polyglance.search.render.terminal import answers_table

            console().print(answers_table([_answer(opened, asked, language, hits)]))
        else:
            console().print(_table(hits), soft_wrap=True)


def _in_languages(query: str | None, also: Sequence[str], language: str | None) -> Text | None:
    """The query alone, or with what it is in other languages."""
    if not also:
        return query
    if query is None or language is None:
        raise PolyglanceError("--also says the query in another language: give it and --language")
    told = {language: query}
    for text in also:
        code, colon, words = text.partition(":")
        if not colon or code.strip() in told:
            raise PolyglanceError(f"--also takes each language once, as de:ein Hund, not {text!r}")
        told[code.strip()] = words.strip()
    return told


def _translated(
    query: str | None,
    language: str | None,
    targets: str,
    translators: Sequence[str],
    dictionaries: Sequence[str] | None,
) -> Text:
    """The query with its translations, which are told as well."""
    from polyglance.search.query import in_languages
    from polyglance.text.dictionary_files import FREEDICT
    from polyglance.text.translation.registry import open_first

    if query is None or language is None:
        raise PolyglanceError("--translate needs a query and its --language, such as en")
    if not translators:
        raise PolyglanceError(
            "--translate needs --translator: words, apertium, or a model's folder"
        )
    opened = [
        open_first(translators, language, target, dictionaries=dictionaries or (FREEDICT,))
        for target in names(targets) or ()
    ]
    told = in_languages(query, language, opened)
    for code, words in told.items() if not isinstance(told, str) else ():
        print(f"{code}: {printable(words) or '(no translation)'}", file=sys.stderr)
    return told


def _table(hits: Sequence[Hit]) -> Table:
    from rich.table import Table
    from rich.text import Text as Line

    again = any(hit.reread is not None for hit in hits)
    table = Table(*(["reread"] if again else []), "score", "file", box=None, pad_edge=False)
    for hit in hits:
        read = [""] if hit.reread is None else [f"{hit.reread:.3f}"]
        name = Line(_name(hit), overflow="ignore", no_wrap=True)
        table.add_row(*(read if again else []), f"{hit.score:.3f}", name)
    return table


def _answer(library: Library, asked: str, language: str | None, hits: Sequence[Hit]) -> Answer:
    """Hits with their pictures; grey stands for one that cannot be read any more."""
    from PIL import Image

    from polyglance.errors import DataError
    from polyglance.search.render.results import Answer
    from polyglance.search.render.results import Hit as Shown

    shown = []
    for hit in hits:
        try:
            picture = library.picture(hit)
        except DataError:
            picture = Image.new("RGB", (64, 64), "grey")
        shown.append(Shown(picture, hit.score, _name(hit)))
    return Answer(asked, language, shown)


def _name(hit: Hit) -> str:
    """The file as it is called from here, and the part of a clip."""
    path = hit.path
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    name = printable(str(path))
    return f"{name} {_clock(hit.span[0])}–{_clock(hit.span[1])}" if hit.span else name


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
