"""``polyglance ask``: a question about a picture, in any language that a model was trained in."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.output import console, tell_cut
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.cross_encoders.vqa import Answerer

_KNOWN = 0.5
"""The least share of a question's words that were seen in questions of its language."""


def ask(
    picture: Annotated[Path, typer.Argument(help="The picture.")],
    question: Annotated[str, typer.Argument(help="What to ask, in a language of the model's.")],
    model: Annotated[
        Path | None, typer.Option(help="The model of a run by the recipe vqa: RUN/model.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Answer in this language: en; else in the question's.")
    ] = None,
    count: Annotated[int, typer.Option("-k", min=1, help="How many answers.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
) -> None:
    """Ask a picture a question; answers come with how likely they are."""
    from polyglance.cross_encoders.explain import last_read
    from polyglance.cross_encoders.vqa import Answerer

    answerer = Answerer.open(model, device=device)
    if not any(map(str.isalnum, question)):
        raise PolyglanceError(
            f"there is no question in {question!r}, which has no word: ask one in"
            f" {', '.join(answerer.languages)}"
        )
    answers = answerer.ask(picture, question, language=language, k=count)
    longest = answerer.description.longest_text
    cut_after = last_read(question, answerer.tokenizer, longest)
    if cut_after is not None:
        tell_cut(question, longest, cut_after)
    if language is None:
        _tell_assumed(answerer, question)
    if as_json:
        print(json.dumps([asdict(answer) for answer in answers], ensure_ascii=False, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("likely", "answer", "in", box=None, pad_edge=False)
    for answer in answers:
        table.add_row(f"{answer.probability:.3f}", Text(answer.text), answer.language)
    console().print(table)


def _tell_assumed(answerer: Answerer, question: str) -> None:
    """Say which language a question was taken for, where it may well be in none of the model's.

    The likeliest of them is always told, even of a question in a language that it never saw;
    then it knows few of the words, if any.
    """
    from polyglance.languages import describe

    assumed = answerer.language_of(question)
    if assumed is None or answerer.lexicon is None:
        return
    if answerer.lexicon.known_share(question, assumed) >= _KNOWN:
        return
    print(
        f"the question was taken for {describe(assumed).english}, but its language cannot be told"
        f" among those of the model ({', '.join(answerer.languages)}): --language sets it",
        file=sys.stderr,
    )
