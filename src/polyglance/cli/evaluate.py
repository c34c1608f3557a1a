"""``polyglance evaluate``: retrieval recall of a model, or of stored embeddings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyglance.cli.completion import complete_languages, complete_model
from polyglance.cli.output import Quiet, console, parse_integers, split_names
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.evaluation.results import Evaluation


def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[IMAGES TEXTS] MANIFEST",
            help="A manifest; or embeddings of images and of captions, and their manifest.",
        ),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model,
            help="Model name or folder, also of CLIP; default: the included model.",
        ),
    ] = None,
    cross_encoder: Annotated[
        Path | None,
        typer.Option(help="A UC2 or M3P of `polyglance export`, which scores every pair."),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(min=1, help="With --cross-encoder: re-rank only the encoder's top-k."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder of the pictures; default: the manifest's.")
    ] = None,
    features: Annotated[
        list[Path] | None,
        typer.Option(
            help="Feature store, for a model of features; repeatable, concatenated in this order."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device for torch models: cpu, cuda, ...")] = "cpu",
    split: Annotated[str | None, typer.Option(help="Only records of this split.")] = None,
    languages: Annotated[
        str | None,
        typer.Option(autocompletion=complete_languages, help="Only these languages: en,de,..."),
    ] = None,
    human: Annotated[
        str | None, typer.Option(help="Languages with human captions, for the human average (HA).")
    ] = None,
    human_only: Annotated[
        bool,
        typer.Option("--human-only", help="Skip captions made by `data translate`."),
    ] = False,
    word_search: Annotated[
        bool,
        typer.Option(
            "--word-search",
            help="Search labelled pictures for the names of COCO's classes: mAP by language.",
        ),
    ] = False,
    model: Annotated[str | None, typer.Option(help="A name for the results file.")] = None,
    split_name: Annotated[str | None, typer.Option(help="A name for the split.")] = None,
    recall_at: Annotated[str, typer.Option(help="Values of k in recall@k.")] = "1,5,10",
    inner_product: Annotated[
        bool, typer.Option("--inner-product", help="Score by inner product, not cosine.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results to a file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate retrieval: recall@k in both directions, by language; or search with single words."""
    from polyglance.data.machine_captions import count_machine_captions
    from polyglance.encoders import load
    from polyglance.encoders.stored_features import with_features
    from polyglance.evaluation.embeddings import evaluate_files
    from polyglance.evaluation.encoders import evaluate_encoder
    from polyglance.evaluation.report import terminal_table
    from polyglance.evaluation.results import write_results

    *embeddings, manifest = files
    if len(embeddings) not in (0, 2):
        raise PolyglanceError(
            "evaluate takes a manifest alone, or image embeddings, caption embeddings and a"
            f" manifest, not {len(files)} files"
        )
    if word_search:
        if embeddings or features or cross_encoder or candidates or split or human or human_only:
            raise PolyglanceError(
                "--word-search takes a manifest of labelled pictures and an encoder: leave the"
                " other files and options out"
            )
        names = {"languages": split_names(languages), "model": model, "split_name": split_name}
        _evaluate_word_search(
            encoder, device, manifest, json_file, pictures=pictures, quiet=quiet, **names
        )
        return
    # Counted before the evaluation: the file of machine captions may not match the manifest.
    machine_counts = {} if human_only else count_machine_captions(manifest, split)
    shared: dict[str, Any] = {
        "split": split,
        "languages": split_names(languages),
        "human": split_names(human) or (),
        "model": model,
        "split_name": split_name,
        "ks": parse_integers(recall_at, "--recall-at"),
    }
    if not embeddings:
        if inner_product:
            raise PolyglanceError(
                "--inner-product is for stored embeddings, since encoders return unit vectors:"
                " leave it out"
            )
        options = {"pictures": pictures, "quiet": quiet, "human_only": human_only, **shared}
        if features and cross_encoder is not None:
            raise PolyglanceError("--features is for a dual encoder: leave out --cross-encoder")
        if cross_encoder is not None:
            result = _evaluate_cross_encoder(
                cross_encoder, manifest, encoder, candidates, device, options
            )
        elif candidates is not None:
            raise PolyglanceError("--candidates needs a model that re-ranks: add --cross-encoder")
        else:
            loaded = load(encoder, device=device)
            if features:
                loaded = with_features(loaded, features)
            result = evaluate_encoder(loaded, manifest, **options)
    elif encoder or pictures or features or cross_encoder or candidates or human_only:
        raise PolyglanceError(
            "--encoder, --cross-encoder, --candidates, --pictures, --features and --human-only are"
            " for evaluating a model: give the manifest alone"
        )
    else:
        images, texts = embeddings
        result = evaluate_files(images, texts, manifest, cosine=not inner_product, **shared)
    console().print(terminal_table(result))
    if json_file:
        write_results(json_file, result)
    _warn_machine_captions(machine_counts, result)


def _evaluate_word_search(
    encoder: str | None, device: str, manifest: Path, json_file: Path | None, **options: Any
) -> None:
    from polyglance.encoders import load
    from polyglance.evaluation.word_search import (
        evaluate_word_search,
        word_search_table,
        write_word_search,
    )

    result = evaluate_word_search(load(encoder, device=device), manifest, **options)
    console().print(word_search_table(result))
    if json_file:
        write_word_search(json_file, result)


def _warn_machine_captions(counts: Mapping[str, int], result: Evaluation) -> None:
    """Warn about machine captions: the model may have been trained on the same translator."""
    languages = [
        f"{code} {count:,} of {result.languages[code].text_to_image.queries:,}"
        for code, count in sorted(counts.items())
        if code in result.languages
    ]
    if languages:
        print(
            f"some of these captions are machine translations: {', '.join(languages)}; --human-only"
            " skips them",
            file=sys.stderr,
        )


def _evaluate_cross_encoder(
    folder: Path,
    manifest: Path,
    encoder: str | None,
    candidates: int | None,
    device: str,
    options: dict[str, Any],
) -> Evaluation:
    """Score every pair with the cross-encoder, or only the encoder's top ``candidates``."""
    from polyglance.cross_encoders.model_folder import load_cross_encoder
    from polyglance.encoders import load
    from polyglance.evaluation.cross_encoders import evaluate_cross_encoder

    if encoder is not None and candidates is None:
        raise PolyglanceError(
            "--cross-encoder scores every pair, so --encoder has no use: add --candidates to"
            " re-rank the encoder's top-k, or leave --encoder out"
        )
    options["model"] = options["model"] or folder.resolve().name
    first_stage = None if candidates is None else load(encoder, device=device)
    opened = load_cross_encoder(folder, device=device)
    return evaluate_cross_encoder(
        opened, manifest, encoder=first_stage, candidates=candidates or 1, **options
    )
