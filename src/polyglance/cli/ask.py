"""``polyglance ask``: a question about a picture, in any language that a model was trained in."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.telling import console


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
    from polyglance.recipes.questions.folder import Answerer

    answers = Answerer.open(model, device=device).ask(picture, question, language=language, k=count)
    if as_json:
        print(json.dumps([asdict(answer) for answer in answers], ensure_ascii=False, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("likely", "answer", "in", box=None, pad_edge=False)
    for answer in answers:
        table.add_row(f"{answer.probability:.3f}", Text(answer.text), answer.language)
    console().print(table)
