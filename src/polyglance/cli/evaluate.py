"""``polyglance evaluate``: recall of a model at work, or of embeddings from disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyglance.cli.output import Quiet, console, names, whole_numbers
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.evaluation.results import Evaluation


def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[IMAGES TEXTS] MANIFEST",
            help="A manifest, to measure an encoder on; or embeddings of pictures (.npy, .npz ..."
            "), of captions by language, and the manifest that says what their rows are.",
        ),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(help="A model's name or folder, CLIP's too; without it, the one shipped."),
    ] = None,
    reader: Annotated[
        Path | None,
        typer.Option(help="A UC2 or M3P of `polyglance export`, which reads every pair."),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(min=1, help="With --reader: so many of the encoder's best are read."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="The folder that pictures are named in: the manifest's.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where an encoder in torch computes.")] = "cpu",
    split: Annotated[str | None, typer.Option(help="Only records of this split.")] = None,
    languages: Annotated[str | None, typer.Option(help="Only these: en,de,...")] = None,
    human: Annotated[
        str | None, typer.Option(help="Languages whose captions people wrote, for HA.")
    ] = None,
    people_only: Annotated[
        bool,
        typer.Option("--people-only", help="Leave captions out that `data translate` made."),
    ] = False,
    model: Annotated[str | None, typer.Option(help="A name for the results file.")] = None,
    split_name: Annotated[str | None, typer.Option(help="What the split is called.")] = None,
    at: Annotated[str, typer.Option(help="The k of recall at k.")] = "1,5,10",
    inner_product: Annotated[
        bool, typer.Option("--inner-product", help="Score by inner product, not cosine.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results to a file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure retrieval: recall both ways, by language, of a model or of embeddings on disk."""
    from polyglance.data.machine_captions import count_machine
    from polyglance.encoders import load
    from polyglance.evaluation.embeddings import evaluate_files
    from polyglance.evaluation.encoders import evaluate_encoder
    from polyglance.evaluation.report import terminal_table
    from polyglance.evaluation.results import write_results

    *embeddings, manifest = files
    if len(embeddings) not in (0, 2):
        raise PolyglanceError(
            "evaluate takes a manifest alone, or embeddings of pictures, of captions, and a"
            f" manifest, not {len(files)} files"
        )
    # Before anything is measured: the file that says so may not fit the manifest.
    by_machine = {} if people_only else count_machine(manifest, split)
    shared: dict[str, Any] = {
        "split": split,
        "languages": names(languages),
        "human": names(human) or (),
        "model": model,
        "split_name": split_name,
        "ks": whole_numbers(at, "--at"),
    }
    if not embeddings:
        if inner_product:
            raise PolyglanceError("--inner-product is for embeddings: encoders make unit vectors")
        alike = {"pictures": pictures, "quiet": quiet, "people_only": people_only, **shared}
        if reader is not None:
            found = _evaluate_reader(reader, manifest, encoder, candidates, device, alike)
        elif candidates is not None:
            raise PolyglanceError("--candidates are read by a model: give it as --reader")
        else:
            found = evaluate_encoder(load(encoder, device=device), manifest, **alike)
    elif encoder or pictures or reader or candidates or people_only:
        raise PolyglanceError(
            "--encoder, --reader, --candidates, --pictures and --people-only are for measuring a"
            " model: give the manifest alone"
        )
    else:
        images, texts = embeddings
        found = evaluate_files(images, texts, manifest, cosine=not inner_product, **shared)
    console().print(terminal_table(found))
    if json_file:
        write_results(json_file, found)
    _tell_machine(by_machine, found)


def _tell_machine(counts: Mapping[str, int], found: Evaluation) -> None:
    """A model may have learned from the same translator: such figures are not of people."""
    said = [
        f"{code} {count:,} of {found.languages[code].text_to_image.queries:,}"
        for code, count in sorted(counts.items())
        if code in found.languages
    ]
    if said:
        print(
            f"a machine made some of these captions: {', '.join(said)}; --people-only leaves them"
            " out",
            file=sys.stderr,
        )


def _evaluate_reader(
    folder: Path,
    manifest: Path,
    encoder: str | None,
    candidates: int | None,
    device: str,
    alike: dict[str, Any],
) -> Evaluation:
    """Every pair read, or with ``candidates`` so many that the encoder finds likeliest."""
    from polyglance.encoders import load
    from polyglance.evaluation.cross_encoders import evaluate_reader
    from polyglance.recipes.cross_encoder.folder import open_pair_model

    if encoder is not None and candidates is None:
        raise PolyglanceError(
            "--reader reads every pair: say how many of the encoder's best it is to read instead"
            " as --candidates, or leave --encoder out"
        )
    alike["model"] = alike["model"] or folder.resolve().name
    finds = None if candidates is None else load(encoder, device=device)
    reader = open_pair_model(folder, device=device)
    return evaluate_reader(reader, manifest, encoder=finds, candidates=candidates or 1, **alike)
