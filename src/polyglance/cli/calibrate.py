"""``polyglance calibrate``: probabilities of a match for a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    model: Annotated[Path, typer.Argument(help="The folder of an exported model.")],
    data: Annotated[
        list[Path],
        typer.Option(help="Manifest of pictures that it was not trained on; repeatable."),
    ],
    labels: Annotated[
        list[Path] | None,
        typer.Option(help="Manifest of their labels; default: from English captions; repeatable."),
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="JSON: labels to their names by language, as queries.")
    ] = None,
    count: Annotated[
        int, typer.Option("--max-pictures", min=256, help="Use so many pictures at most.")
    ] = 8000,
    seed: Annotated[int, typer.Option(help="Draws pictures, captions and libraries.")] = 0,
) -> None:
    """Fit the probability that a picture matches a query, and write it into a model's folder.

    All pictures fit it; how well such a fit does is measured by cross-validation. Search then shows
    probabilities, and says when nothing fits well.
    """
    import random

    from polyglance.encoders import load
    from polyglance.evaluation.calibration_data import (
        calibrate,
        encode_calibration_data,
        read_labelled_pictures,
    )
    from polyglance.export.calibration import write_calibration

    encoder = load(model)
    pictures = read_labelled_pictures(data, labels or ())
    if len(pictures) > count:
        pictures = random.Random(seed).sample(pictures, count)
    vectors = encoder.encode_pictures([picture.path for picture in pictures])
    translated = None if names is None else json.loads(names.read_text(encoding="utf-8"))
    encoded = encode_calibration_data(
        encoder, pictures, vectors, names=translated, captions_per_picture=2, seed=seed
    )
    calibration, report = calibrate(encoded, seed=seed)
    path = write_calibration(model, calibration)
    print(f"{path}: fold at a probability of {calibration.fold(None):.2f}")
    for kind, text in (
        ("match", "matches among the first ten that are above the fold"),
        ("nonsense", "nonsense with hits above the fold"),
        ("absent", "captions of nothing in the library with hits above the fold"),
    ):
        if kind in report:
            print(f"{report[kind]['above']:6.1%}  {text} ({report[kind]['count']:,})")
