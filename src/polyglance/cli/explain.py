"""``polyglance explain``: where each word of a sentence looks in a picture."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.telling import whole_numbers
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
    out: Annotated[Path, typer.Option(help="Folder for looks.html and looks.png.")],
    language: Annotated[str | None, typer.Option(help="The sentence's: en.")] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="The same in another language, de:ein Hund; again for more."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A run of UC2 or M3P, a stage of one, or of vqa.")
    ] = None,
    by: Annotated[By, typer.Option(help="What to draw.")] = By.relevance,
    layers: Annotated[
        str | None, typer.Option(help="Of attention, from 1: 9,10,11,12; all without it.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="What made the features that the run was trained on.")
    ] = None,
    font: Annotated[
        Path | None, typer.Option(help="A font with all letters, for looks.png.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
) -> None:
    """Draw where each word looks, in several languages side by side."""
    from polyglance.recipes.explaining import Explainer
    from polyglance.search.showing.looks_sheet import Row, draw_looks, write_looks_page
    from polyglance.vision.pictures import read_picture

    chosen = whole_numbers(layers, "--layers") if layers else []
    if chosen and by is not By.attention:
        raise PolyglanceError("--layers are those of attention: add --by attention")
    told = [(language, sentence), *(_in_language(text) for text in also or ())]
    opened = Explainer.open(model, backbone=backbone, device=device)
    rows = []
    for code, text in told:
        found = opened.explain(picture, text, language=code, by=by.value, layers=chosen)
        rows.append(Row(text, code, found.words, found.cells))
    shown = read_picture(picture)
    drawn = draw_looks(shown, rows, font=font)
    out.mkdir(parents=True, exist_ok=True)
    drawn.save(out / "looks.png")
    write_looks_page(out / "looks.html", shown, rows, note=_NOTES[by])
    print(f"{out / 'looks.html'}\n{out / 'looks.png'}")


def _in_language(text: str) -> tuple[str, str]:
    from polyglance.languages import normalise_language

    code, colon, words = text.partition(":")
    try:
        return normalise_language(code.strip()), words.strip() if colon else ""
    except ValueError:
        raise PolyglanceError(
            f"--also takes a language first, as de:ein Hund, not {text!r}"
        ) from None
