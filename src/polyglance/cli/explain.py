"""``polyglance explain``: where each word of a sentence looks in a picture."""

from __future__ import annotations

import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import Quiet, shortened, tell_cut, whole_numbers
from polyglance.errors import PolyglanceError


class By(StrEnum):
    """What is drawn."""

    relevance = "relevance"
    attention = "attention"


_NOTES = {
    By.relevance: "Bright is what makes the model sure of a word that is hidden from it, or of its"
    " answer (integrated gradients).",
    By.attention: "Bright is where the word attends to, the mean of heads and layers.",
}


def explain(
    picture: Annotated[Path, typer.Argument(help="The picture.")],
    sentence: Annotated[str, typer.Argument(help="What is said or asked of it.")],
    out: Annotated[Path, typer.Option(help="Folder for looks.html and looks.png.")] = Path("looks"),
    language: Annotated[str | None, typer.Option(help="The sentence's: en.")] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="The same in another language, de:ein Hund; again for more."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A run of UC2 or M3P, a stage of one, or of vqa.")
    ] = None,
    by: Annotated[
        By, typer.Option(help="What to draw; relevance of a model that learned hidden words.")
    ] = By.relevance,
    layers: Annotated[
        str | None, typer.Option(help="Of attention, from 1: 9,10,11,12; all without it.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="The store of features that the run was trained on.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The network that made them, if it lies elsewhere now.")
    ] = None,
    font: Annotated[
        list[Path] | None,
        typer.Option(help="For looks.png, of letters that no font here has; again for more."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Draw where each word looks, in several languages side by side."""
    from polyglance.cross_encoders.explain import Explainer
    from polyglance.search.render.attribution_page import (
        Row,
        draw_looks,
        missing_letters,
        open_font,
        write_looks_page,
    )
    from polyglance.vision.pictures import read_picture

    chosen = whole_numbers(layers, "--layers") if layers else []
    if chosen and by is not By.attention:
        raise PolyglanceError("--layers are those of attention: add --by attention")
    fonts = font or []
    for one in fonts:
        open_font(one)  # before anything is looked at, which takes its time
    told = [(language, sentence), *(_in_language(text) for text in also or ())]
    opened = Explainer.open(model, backbone=backbone, features=features, device=device)
    rows, ways = [], []
    for code, text in told:
        found = opened.explain(
            picture, text, language=code, by=by.value, layers=chosen, quiet=quiet
        )
        rows.append(Row(text, code, found.words, found.cells))
        ways.append(By(found.by))
        if found.cut_after is not None:
            tell_cut(text, opened.longest, found.cut_after)
        if found.untold:
            print(_untold(code), file=sys.stderr)
    shown = read_picture(picture)
    drawn = draw_looks(shown, rows, fonts=fonts)
    out.mkdir(parents=True, exist_ok=True)
    drawn.save(out / "looks.png")
    write_looks_page(out / "looks.html", shown, rows, note=_NOTES[ways[0]])
    if ways[0] is not by:
        print(
            "attention is drawn: nothing says that the model learned to tell hidden words, as"
            " relevance needs",
            file=sys.stderr,
        )
    if missing := missing_letters(rows, fonts=fonts):
        named = [
            f"{row.language or repr(shortened(row.sentence))} ({shortened(letters, 6)})"
            for row, letters in missing
        ]
        print(
            f"looks.png: no font has letters of {_listed(named)}: give one as --font, or open"
            " looks.html",
            file=sys.stderr,
        )
    print(f"{out / 'looks.html'}\n{out / 'looks.png'}")


def _untold(language: str | None) -> str:
    if language is None:
        return (
            "the model reads a sentence with its language and is not told of one: name it as"
            " --language"
        )
    return f"{language}: the model has no embedding of this language, so it is not told of it"


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _in_language(text: str) -> tuple[str, str]:
    from polyglance.languages import normalise_language

    code, _, words = text.partition(":")
    with suppress(ValueError):
        if words.strip():
            return normalise_language(code.strip()), words.strip()
    raise PolyglanceError(f"--also takes a language and a sentence, as de:ein Hund, not {text!r}")
