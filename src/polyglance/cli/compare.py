"""``polyglance compare``: models side by side on captioned pictures of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.completion import complete_language, complete_languages, complete_model
from polyglance.cli.output import (
    Quiet,
    console,
    parse_integers,
    parse_language,
    print_bad_files,
    split_names,
)
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.evaluation.comparison_data import TestSet


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            autocompletion=complete_model,
            help="Names, folders or runs, the baseline first (else the included model);"
            " or NAME=FOLDER.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="Captioned pictures: a manifest, or a folder with captions in files beside them."
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(help="Write a page with charts, and queries that differ most.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to a file; - prints them.")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1, help="Cross-encoders re-rank only a dual encoder's top-k; default: every pair."
        ),
    ] = None,
    first_stage: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model, help="That dual encoder; default: the included model."
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(autocompletion=complete_languages, help="Only these languages: en,de,..."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_language,
            help="Language of captions whose files do not say; default: en.",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only records of this split.")] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder of the pictures; default: that of the captions.")
    ] = None,
    features: Annotated[
        list[Path] | None,
        typer.Option(help="Feature store, for models of features; repeatable."),
    ] = None,
    human_only: Annotated[
        bool, typer.Option("--human-only", help="Skip captions made by `data translate`.")
    ] = False,
    recall_at: Annotated[str, typer.Option(help="Values of k in recall@k.")] = "1,5,10",
    queries: Annotated[
        int, typer.Option(min=0, help="Queries on the page, for each model and direction.")
    ] = 6,
    device: Annotated[str, typer.Option(help="Device for torch models: cpu, cuda, ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Compare models on your own captioned pictures, by language, with a paired bootstrap."""
    from polyglance.evaluation.comparison import compare_models, most_different_queries
    from polyglance.evaluation.comparison_data import open_test_set
    from polyglance.evaluation.comparison_models import (
        ModelRanker,
        check_models,
        parse_specs,
        takes_features,
    )
    from polyglance.evaluation.comparison_page import describe, verdict, write_comparison_page
    from polyglance.evaluation.comparison_report import (
        comparison_json,
        comparison_tables,
        write_json,
    )

    specs, ks = parse_specs(models), parse_integers(recall_at, "--recall-at")
    _check_outputs(html, json_file)
    if first_stage is not None and candidates is None:
        raise PolyglanceError("--first-stage is for re-ranking: add --candidates, or leave it out")
    sources = [*(spec.source for spec in specs), *([first_stage] if first_stage else [])]
    check_models(sources, features or ())
    test_set = open_test_set(
        data,
        split=split,
        languages=split_names(languages),
        language=None if language is None else parse_language(language),
        pictures=pictures,
        human_only=human_only,
        with_pictures=not all(takes_features(source) for source in sources),
        quiet=quiet,
    )
    _warn(test_set)
    ranker = ModelRanker(
        test_set.layout, test_set.files, test_set.languages, first_stage=first_stage,
        candidates=candidates, features=features or (), device=device, quiet=quiet,
    )  # fmt: skip
    ranks = [ranker.rank(spec) for spec in specs]
    figures = compare_models(ranks, ks=ks)
    chosen = most_different_queries(ranks, queries) if queries else []
    plain = comparison_json(test_set, figures, ranks, chosen)
    if json_file is not None and str(json_file) == "-":
        write_json(sys.stdout, plain)
    else:
        print(describe(test_set))
        for table in comparison_tables(figures):
            console().print(table)
        for model in figures[1:]:
            print(verdict(figures[0], model))
        if json_file is not None:
            write_json(json_file, plain)
    if html is not None:
        write_comparison_page(html, test_set, figures, ranks, chosen)
        print(f"{html}: {html.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


def _check_outputs(html: Path | None, json_file: Path | None) -> None:
    """Refuse to replace what is no page of ours, before hours of work and not after."""
    from polyglance.search.render.html_page import is_own_page

    if html is not None and html.is_dir():
        raise PolyglanceError(f"{html} is a folder: give a file, such as {html / 'compare.html'}")
    if html is not None and html.is_file() and html.stat().st_size and not is_own_page(html):
        raise PolyglanceError(f"{html} is no page of Polyglance and is not replaced: name another")
    if json_file is not None and json_file.is_dir():
        raise PolyglanceError(f"{json_file} is a folder: give a file, such as compare.json")


def _warn(test_set: TestSet) -> None:
    reasons = {name: text.removeprefix(f"{name}: ") for name, text in test_set.skipped.items()}
    print_bad_files(reasons)
    if test_set.machine_captions:
        counts = ", ".join(f"{code} {n:,}" for code, n in test_set.machine_captions.items())
        print(
            f"some of these captions are machine translations: {counts}; --human-only skips them",
            file=sys.stderr,
        )
