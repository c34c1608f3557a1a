"""``polyglance data merge`` and ``hold-out``: put manifests together, and keep pictures back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import parse_language, pluralize


def data_merge(
    manifests: Annotated[list[Path], typer.Argument(help="Manifests to merge, two or more.")],
    out: Annotated[Path, typer.Option(help="Manifest to write.")],
    languages: Annotated[
        str | None, typer.Option(help="Keep captions in these, such as de,fr, and in --source.")
    ] = None,
    source: Annotated[str, typer.Option(help="Language that translations were made from.")] = "en",
    without: Annotated[
        list[Path] | None,
        typer.Option(help="Leave out the pictures of this manifest; repeatable."),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(help="Leave out pictures without captions in each of these, such as en."),
    ] = None,
) -> None:
    """Merge manifests into one record per picture; marks of machine captions are kept."""
    from polyglance.data.merge import merge_manifests

    chosen = None if languages is None else [parse_language(x) for x in languages.split(",")]
    required = [] if require is None else [parse_language(x) for x in require.split(",")]
    result = merge_manifests(
        manifests, out, languages=chosen, source=parse_language(source), without=without or (),
        require=required,
    )  # fmt: skip
    by_machine = {code: f" ({count:,} by machine)" for code, count in result.machine.items()}
    counts = [f"{code} {n:,}{by_machine.get(code, '')}" for code, n in result.captions.items()]
    print(f"{out}: {pluralize(result.records, 'record')}, captions {'  '.join(counts)}")


def data_hold_out(
    manifest: Annotated[Path, typer.Argument(help="A manifest of pictures.")],
    out: Annotated[Path, typer.Option(help="Manifest of the held-out pictures to write.")],
    pictures: Annotated[int, typer.Option(min=1, help="How many to hold out.")] = 500,
    language: Annotated[
        str | None, typer.Option(help="Only pictures with captions in this language.")
    ] = None,
    not_in: Annotated[
        list[Path] | None,
        typer.Option(help="None of this manifest, such as one trained on; repeatable."),
    ] = None,
) -> None:
    """Hold pictures out of training, chosen by a hash of their file names.

    The same pictures come first whatever the manifest, so several held-out sets of one corpus
    share most of theirs. `polyglance data merge --without` leaves them out of training.
    """
    from polyglance.data.hold_out import hold_out_pictures

    code = None if language is None else parse_language(language)
    count = hold_out_pictures(
        manifest, out, pictures=pictures, language=code, not_in=tuple(not_in or ())
    )
    print(f"{out}: {pluralize(count, 'picture')} held out")
