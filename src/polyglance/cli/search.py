"""``polyglance search``: search a library in any language."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from polyglance.cli.completion import complete_language
from polyglance.cli.hits import (
    check_page_name,
    print_hits,
    print_json,
    print_paths,
    print_query,
    print_understood,
    write_page,
)
from polyglance.cli.index import LibraryOption
from polyglance.cli.output import split_names
from polyglance.errors import PolyglanceError, printable

if TYPE_CHECKING:
    from polyglance.search.library import Library
    from polyglance.search.query import ImageQuery, QueryText
    from polyglance.search.query_syntax import Weighted

FILTERS, OUTPUT = "Filters", "Output"
_EXCLUDED_WORD = re.compile(r"-[^\W\d_]{2}")
TRANSLATION, MODELS = "Several languages", "Models"


class SearchCommand(TyperCommand):
    """Takes ``-people`` for a word of the query that excludes people, not for five options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse options and words."""
        options = {name: option for option in self.params for name in option.opts}
        taken, excluded, literal = list[str](), list[str](), False
        for place, word in enumerate(args):
            literal = literal or word == "--"
            before = options.get(args[place - 1]) if place else None
            is_value = before is not None and not getattr(before, "is_flag", False)
            is_word = _EXCLUDED_WORD.match(word) and word[:2] not in options
            (excluded if is_word and not is_value and not literal else taken).append(word)
        if excluded:
            taken += excluded if literal else ["--", *excluded]
        return super().parse_args(ctx, taken)


def search(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]...", help="A description in any language."),
    ] = None,
    library: LibraryOption = None,
    count: Annotated[int, typer.Option("-k", min=1, help="Number of hits (top-k).")] = 20,
    picture: Annotated[
        list[Path] | None,
        typer.Option(help="Similar to this picture; a.jpg^2 counts twice; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Exclude what matches these words; repeatable.")
    ] = None,
    exclude_picture: Annotated[
        list[Path] | None, typer.Option(help="Unlike this picture; repeatable.")
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            min=-1,
            max=1,
            help="Only hits with at least this probability, such as 0.5 (without a calibration, a"
            " cosine).",
        ),
    ] = None,
    correct: Annotated[
        bool, typer.Option("--correct/--no-correct", help="Correct typing mistakes.")
    ] = True,
    literal: Annotated[
        bool,
        typer.Option("--literal", help="Take the query as it is: no -word, ^2, without, typos."),
    ] = False,
    translation: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=TRANSLATION,
            help="The query in another language, de:ein Hund; repeatable.",
        ),
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(rich_help_panel=FILTERS, help="Only in this folder; repeatable."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(rich_help_panel=FILTERS, help="Only picture or only clip.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(rich_help_panel=FILTERS, help="Taken then or later: 2024-07.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(rich_help_panel=FILTERS, help="Taken then or earlier: 2024-07-31.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TRANSLATION,
            autocompletion=complete_language,
            help="Language of the query; for --translate and for models that need it.",
        ),
    ] = None,
    translate: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TRANSLATION,
            help="Translate the query into these languages and combine the scores: de,fr.",
        ),
    ] = None,
    translator: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=TRANSLATION,
            help="Translator: words, apertium or a model folder; repeatable.",
        ),
    ] = None,
    dictionaries: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=TRANSLATION,
            help="Dictionaries for words; default: Debian's FreeDict; repeatable.",
        ),
    ] = None,
    rerank: Annotated[
        bool,
        typer.Option(
            "--rerank",
            rich_help_panel=MODELS,
            help="Re-rank the best hits by the model's reader.",
        ),
    ] = False,
    cross_encoder: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=MODELS, help="A trained UC2 or M3P that re-ranks the best hits."
        ),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=MODELS,
            help="Number of hits to re-rank; default: 20 with --rerank, 50 with --cross-encoder.",
        ),
    ] = None,
    all_segments: Annotated[
        bool, typer.Option("--all-segments", help="All segments of a clip, not only the best.")
    ] = False,
    off: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=FILTERS,
            help="Search without names, dates, places or text (beside pixels); repeatable.",
        ),
    ] = None,
    stack: Annotated[
        bool, typer.Option("--stack", help="Only the best of copies, near-duplicates and bursts.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MODELS,
            help="The library's model, if it has moved, or one with the same vectors of pictures.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the hits as JSON.")
    ] = False,
    paths: Annotated[
        bool,
        typer.Option(
            "--paths", rich_help_panel=OUTPUT, help="Print only the paths, one a line, for pipes."
        ),
    ] = False,
    null: Annotated[
        bool,
        typer.Option(
            "-0", "--null", rich_help_panel=OUTPUT, help="As --paths, each ended by a null byte."
        ),
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", rich_help_panel=OUTPUT, help="No pictures in the terminal.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(rich_help_panel=OUTPUT, help="Write the hits to this HTML page.")
    ] = None,
) -> None:
    """Find pictures and clips by words in any language, by a picture, or by both."""
    from polyglance.search.library import Library

    query = " ".join(words) if words else None
    if as_json and (paths or null):
        raise PolyglanceError("--json and --paths exclude each other: give one of them")
    if candidates and not (rerank or cross_encoder):
        raise PolyglanceError(
            "--candidates is for re-ranking: add --rerank or --cross-encoder, or leave it out"
        )
    if html:
        check_page_name(html)
    text = _with_translations(query, translation or (), language)
    if translate and translation:
        raise PolyglanceError("--translation and --translate exclude each other: give one of them")
    if translate:
        text = _translate(query, language, translate, translator or (), dictionaries)
    reranker = cross_encoder or (True if rerank else None)
    with Library(library, model=model, reranker=reranker) as opened:
        _warn_unknown_folders(opened, folder or ())
        hits = opened.search(
            text,
            picture=_weighted(picture or ()),
            exclude=exclude,
            exclude_picture=_weighted(exclude_picture or ()),
            k=count,
            min_score=min_score,
            correct=correct,
            literal=literal,
            folder=folder,
            kind=kind,
            since=since,
            until=until,
            language=language,
            all_segments=all_segments,
            candidates=candidates,
            off=off or (),
            stack=stack,
        )
        if isinstance(text, str):
            print_understood(opened.understand(text, language, off or ()))
        title = " + ".join([*([query] if query else []), *(path.name for path in picture or ())])
        excluded = [*(exclude or ()), *(path.name for path in exclude_picture or ())]
        title += "".join(f" − {name}" for name in excluded)
        if not as_json:
            print_query(hits)
        if html:
            write_page(html, opened, title, language, hits)
        if as_json:
            print_json(hits)
        elif paths or null:
            print_paths([hit.path for hit in hits], "\0" if null else "\n")
        elif hits:
            print_hits(opened, title, language, hits, plain=plain)
        if not hits and not as_json:
            what = "" if min_score is None else ", or a lower --min-score"
            way_out = f"nothing found: try other words or fewer filters{what}"
            if not len(opened):
                way_out = "the library is empty: `polyglance index FOLDER` adds pictures and clips"
            print(way_out, file=sys.stderr)


def _weighted(pictures: Sequence[Path]) -> list[ImageQuery | Weighted[ImageQuery]]:
    """Return pictures with their weights: ``a.jpg^2``, unless a file has that very name."""
    from polyglance.search.query_syntax import Weighted, parse_weight

    found: list[ImageQuery | Weighted[ImageQuery]] = []
    for path in pictures:
        name, weight = (str(path), 1.0) if path.exists() else parse_weight(str(path))
        found.append(Weighted(Path(name), weight) if weight != 1.0 else Path(name))
    return found


def _warn_unknown_folders(library: Library, folders: Sequence[Path]) -> None:
    """Name the folders of which the library has nothing; raise an error if these are all."""
    unknown = [folder for folder in folders if not library.has_files_in(folder)]
    names = ", ".join(printable(str(folder)) for folder in unknown)
    if unknown and len(unknown) == len(folders):
        raise PolyglanceError(
            f"{names}: nothing of this is in the library; `polyglance library info` lists its"
            " folders"
        )
    if unknown:
        print(f"{names}: nothing of this is in the library", file=sys.stderr)


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
