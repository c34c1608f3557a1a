"""``polyglance explain``: show which parts of a picture each word of a sentence refers to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.completion import complete_language
from polyglance.cli.output import Quiet, parse_integers, shorten, warn_truncated
from polyglance.cli.reader import open_reader
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.encoders.attribution import Attribution


class Method(StrEnum):
    """Attribution method."""

    relevance = "relevance"
    attention = "attention"
    occlusion = "occlusion"


_NOTES = {
    Method.relevance: "Bright cells make the masked word, or the answer, more probable (integrated"
    " gradients).",
    Method.occlusion: "Bright cells make the word add more to the match of sentence and picture, or"
    " make the answer more probable (occlusion).",
    Method.attention: "Bright cells get attention from the word (mean of heads and layers).",
}


def explain(
    picture: Annotated[Path, typer.Argument(help="The picture.")],
    sentence: Annotated[str, typer.Argument(help="A sentence or question about it.")],
    out: Annotated[Path, typer.Option(help="Folder for attribution.html and .png.")] = Path(
        "attribution"
    ),
    language: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_language, help="Language of the sentence, such as en."
        ),
    ] = None,
    translation: Annotated[
        list[str] | None,
        typer.Option(help="The same in another language, de:ein Hund; repeatable."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model with a reader, or a run or model folder of UC2, M3P or vqa; default: the"
            " included one."
        ),
    ] = None,
    by: Annotated[
        Method | None,
        typer.Option(
            help="Method: occlusion with a reader; relevance, with a model trained by MLM, or"
            " attention."
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers for attention, from 1: 9,10,11,12; default: all.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The image backbone, if it has moved.")
    ] = None,
    font: Annotated[
        list[Path] | None,
        typer.Option(
            help="Font for characters in the .png that no installed font has; repeatable."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Draw which parts of a picture each word refers to, in several languages side by side."""
    from polyglance.search.render.attribution_page import (
        AttributionRow,
        draw_attribution,
        missing_glyphs,
        open_font,
        write_attribution_page,
    )
    from polyglance.vision.pictures import read_picture

    layer_numbers = parse_integers(layers, "--layers") if layers else []
    if layer_numbers and by is not Method.attention:
        raise PolyglanceError("--layers is for attention: add --by attention")
    fonts = font or []
    for path in fonts:
        open_font(path)  # fail before the slow part
    sentences = [(language, sentence), *(_parse_translation(text) for text in translation or ())]
    reader = open_reader(model)
    if reader is not None and by not in (None, Method.occlusion):
        raise PolyglanceError(
            f"a reader explains by occlusion: leave --by {by} out, or give a trained UC2, M3P or"
            " vqa model as --model"
        )
    if reader is not None and backbone is not None:
        raise PolyglanceError("a reader brings its own image backbone: leave --backbone out")
    if reader is None and by is Method.occlusion:
        raise PolyglanceError("only a model with a reader explains by occlusion: leave --by out")
    wanted = by or (Method.relevance if reader is None else Method.occlusion)
    explain_text: Callable[..., Attribution]
    if reader is not None:
        explain_text, max_tokens = partial(reader.explain, picture), reader.max_text_tokens
    else:
        from polyglance.cross_encoders.explain import Explainer

        explainer = Explainer.open(model, backbone=backbone, device=device)
        explain_text = partial(
            explainer.explain, picture, method=wanted.value, layers=layer_numbers, quiet=quiet
        )
        max_tokens = explainer.max_text_tokens
    rows, methods = [], []
    for code, text in sentences:
        result = explain_text(text, language=code)
        rows.append(AttributionRow(text, code, result.words, result.heatmaps))
        methods.append(Method(result.method))
        if result.truncated_after is not None:
            warn_truncated(text, max_tokens, result.truncated_after)
        if result.language_unknown:
            print(_language_warning(code), file=sys.stderr)
    image = read_picture(picture)
    drawing = draw_attribution(image, rows, fonts=fonts)
    out.mkdir(parents=True, exist_ok=True)
    drawing.save(out / "attribution.png")
    write_attribution_page(out / "attribution.html", image, rows, note=_NOTES[methods[0]])
    if methods[0] is not wanted:
        print(
            "attention is drawn instead: relevance needs a model known to be trained by MLM",
            file=sys.stderr,
        )
    if missing := missing_glyphs(rows, fonts=fonts):
        rows_without_font = [
            f"{row.language or repr(shorten(row.sentence))} ({shorten(letters, 6)})"
            for row, letters in missing
        ]
        print(
            f"attribution.png: no font has the characters of {_join(rows_without_font)}: add"
            " --font, or open attribution.html",
            file=sys.stderr,
        )
    print(f"{out / 'attribution.html'}\n{out / 'attribution.png'}")


def _language_warning(language: str | None) -> str:
    if language is None:
        return (
            "the model has language embeddings, but the language of the sentence is not given: set"
            " --language"
        )
    return f"{language}: the model has no embedding of this language and uses none"


def _join(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _parse_translation(text: str) -> tuple[str, str]:
    from polyglance.languages import normalise_language

    code, _, words = text.partition(":")
    with suppress(ValueError):
        if words.strip():
            return normalise_language(code.strip()), words.strip()
    raise PolyglanceError(
        f"--translation takes a language and a sentence, such as de:ein Hund, not {text!r}"
    )
