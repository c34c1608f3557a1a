"""``polyglance ask``: ask a question about a picture."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.completion import complete_language
from polyglance.cli.output import console, warn_truncated
from polyglance.cli.reader import open_reader
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.cross_encoders.vqa import VQA
    from polyglance.encoders.reader import Reader

_MIN_COVERAGE = 0.5
"""Minimum share of a question's words that occur in training questions of its language."""


def ask(
    picture: Annotated[Path, typer.Argument(help="The picture.")],
    question: Annotated[str, typer.Argument(help="A question in a language of the model.")],
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model with a reader, or of a vqa run: RUN/model; default: the included one."
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_language,
            help="Language of the answers, such as en; default: the question's.",
        ),
    ] = None,
    count: Annotated[int, typer.Option("-k", min=1, help="Number of answers.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
) -> None:
    """Ask a question about a picture; print answers with their probabilities."""
    vqa = open_reader(model) or _open_vqa(model, device)
    if not any(map(str.isalnum, question)):
        raise PolyglanceError(
            f"the question {question!r} has no words: ask one in {', '.join(vqa.languages)}"
        )
    answers = vqa.ask(picture, question, language=language, k=count)
    cut_after = vqa.last_word_read(question)
    if cut_after is not None:
        warn_truncated(question, vqa.config.max_text_tokens, cut_after)
    if language is None:
        _warn_uncertain_language(vqa, question)
    if as_json:
        print(json.dumps([asdict(answer) for answer in answers], ensure_ascii=False, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("probability", "answer", "language", box=None, pad_edge=False)
    for answer in answers:
        table.add_row(f"{answer.probability:.3f}", Text(answer.text), answer.language)
    console().print(table)


def _open_vqa(model: Path | None, device: str) -> VQA:
    from polyglance.cross_encoders.vqa import VQA

    return VQA.open(model, device=device)


def _warn_uncertain_language(vqa: VQA | Reader, question: str) -> None:
    """Warn if the question may be in a language that the model does not have.

    Language detection always picks one of the model's languages; for a question in another one,
    few of its words occur in the training questions.
    """
    from polyglance.languages import get_language

    detected = vqa.detect_language(question)
    if detected is None or vqa.lexicon is None:
        return
    if vqa.lexicon.coverage(question, detected) >= _MIN_COVERAGE:
        return
    print(
        f"the question was taken for {get_language(detected).english_name}, but may be in"
        f" none of the model's languages ({', '.join(vqa.languages)}): set --language",
        file=sys.stderr,
    )
