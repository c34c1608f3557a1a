"""``polyglance data pair-captions``: find translations among the captions of a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import Strict, parse_language, pluralize, print_skipped
from polyglance.errors import PolyglanceError, Problems


def pair_captions(
    manifests: Annotated[list[Path], typer.Argument(help="Manifests that share pictures.")],
    out: Annotated[Path, typer.Option(help="Pairs to write, JSON lines.")],
    to: Annotated[str, typer.Option(help="Language of the translations.")],
    source: Annotated[str, typer.Option("--from", help="Language translated from.")] = "en",
    min_similarity: Annotated[
        float, typer.Option(help="Minimum cosine similarity of a caption and its translation.")
    ] = 0.7,
    margin: Annotated[
        float, typer.Option(help="How much less similar the picture's other captions must be.")
    ] = 0.05,
    encoder: Annotated[
        str | None, typer.Option(help="Model that compares; default: the included model.")
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(
            help="Compare words by a dictionary instead: faster, with a lower --min-similarity."
        ),
    ] = None,
    strict: Strict = False,
) -> None:
    """Find which captions of a picture are translations of each other."""
    from polyglance.data.pair_captions import TextEncoder, WordOverlap
    from polyglance.data.pair_captions import pair_captions as pair
    from polyglance.encoders import load
    from polyglance.text.dictionaries import open_dictionary

    problems, source, to = Problems(strict=strict), parse_language(source), parse_language(to)
    compare: TextEncoder
    if dictionary is None:
        compare = load(encoder)
    elif encoder is not None:
        raise PolyglanceError("--encoder and --dictionary both compare: give one of them")
    else:
        compare = WordOverlap(open_dictionary(dictionary, source=to, problems=problems), source)
    result = pair(
        manifests,
        out,
        compare,
        source=source,
        target=to,
        min_similarity=min_similarity,
        margin=margin,
        problems=problems,
    )
    print_skipped(problems)
    print(
        f"{out}: {pluralize(result.pairs, 'pair')} of {pluralize(result.captions, 'caption')} of"
        f" {pluralize(result.pictures, 'picture')}"
    )
