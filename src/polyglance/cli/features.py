"""``polyglance features``: extract visual features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.limits import MaxMemory, MaxPixels, MaxSeconds, decode_limits
from polyglance.cli.output import Quiet, Strict, console, print_bad_files, print_skipped
from polyglance.errors import Problems

app = typer.Typer(no_args_is_help=True, help="Visual features of pictures and clips.")


@app.command("extract")
def features_extract(
    source: Annotated[Path, typer.Argument(help="A manifest, a folder, a picture or a clip.")],
    out: Annotated[Path, typer.Option(help="Feature store to write or resume.")],
    backbone: Annotated[str, typer.Option(help="Image backbone.")] = "efficientnet-lite2",
    size: Annotated[int, typer.Option(help="Side in pixels that pictures are resized to.")] = 224,
    resize: Annotated[str, typer.Option(help="Fit to the square: squash or centre.")] = "squash",
    views: Annotated[
        str, typer.Option(help="Test-time augmentation: one, mirror or ten views, averaged.")
    ] = "one",
    grid: Annotated[int, typer.Option(help="Grid cells per side.")] = 7,
    labels: Annotated[int, typer.Option(help="Top-k labels to store per cell; 0 for none.")] = 10,
    labels_by: Annotated[
        str | None, typer.Option(help="Backbone for the labels; default: the same.")
    ] = None,
    detector: Annotated[
        str | None, typer.Option(help="Add a detector's objects: ssdlite-mobilenet-v2.")
    ] = None,
    objects: Annotated[int, typer.Option(help="Most objects per picture.")] = 10,
    min_score: Annotated[float, typer.Option(help="Drop objects below this score.")] = 0.3,
    dtype: Annotated[str, typer.Option(help="Storage type: int8 or float16.")] = "int8",
    threads: Annotated[int | None, typer.Option(help="CPU threads; default: all cores.")] = None,
    workers: Annotated[
        int, typer.Option(help="Processes, which share the threads and the device.")
    ] = 1,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
    max_pixels: MaxPixels = None,
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Extract features of pictures and clips into a feature store; run again to resume."""
    from polyglance.vision.extraction import extract
    from polyglance.vision.shard_encoding import ExtractionSettings

    settings = ExtractionSettings(
        backbone=backbone,
        size=size,
        resize=resize,  # type: ignore[arg-type]  # checked by extract
        views=views,  # type: ignore[arg-type]
        grid=grid,
        labels=labels,
        labels_by=labels_by,
        detector=detector,
        objects=objects,
        min_score=min_score,
        dtype=dtype,  # type: ignore[arg-type]
    )
    problems = Problems(strict=strict)
    result = extract(
        source,
        out,
        settings,
        threads=threads,
        workers=workers,
        device=device,
        problems=problems,
        limits=decode_limits(max_pixels, max_seconds, max_memory),
        quiet=quiet,
    )
    print_skipped(problems)
    print_bad_files(result.bad)
    new = result.items - result.done_before
    rate = f", {new / result.seconds:.1f} a second" if new else ""
    print(f"{out}: {result.items - len(result.bad):,} of {result.items:,} stored{rate}")
    if len(result.bad) == result.items:
        raise typer.Exit(1)


@app.command("regions")
def features_regions(
    sources: Annotated[
        list[Path],
        typer.Argument(help="Detector output: .tsv, .h5, LMDB or .npz folder; one or more."),
    ],
    out: Annotated[Path, typer.Option(help="Feature store to write or resume.")],
    labels: Annotated[int, typer.Option(help="Top-k labels to store per region.")] = 1,
    dtype: Annotated[str, typer.Option(help="Storage type: int8 or float16.")] = "int8",
    quiet: Quiet = False,
) -> None:
    """Import the regions of an external detector into a feature store."""
    from polyglance.vision.region_import import import_regions

    result = import_regions(sources, out, labels=labels, dtype=dtype, quiet=quiet)  # type: ignore[arg-type]
    print_bad_files(result.bad)
    print(f"{out}: {result.items - len(result.bad):,} of {result.items:,} stored")


@app.command("import")
def features_import(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder with VIDEO.npy, .npz, .pt or .h5, or one .h5 with a dataset a video."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Feature store to write or resume.")],
    features_per_second: Annotated[
        float, typer.Option(help="Vectors per second of video in the files.")
    ] = 1.0,
    dtype: Annotated[str, typer.Option(help="Storage type: int8 or float16.")] = "int8",
    shard_size: Annotated[
        int | None, typer.Option(min=1, help="Videos per file of the store; default: 256 or more.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Import clip features of an external video network, one vector a second, into a store."""
    from polyglance.vision.clip_import import import_clip_features

    result = import_clip_features(
        source,
        out,
        features_per_second=features_per_second,
        dtype=dtype,  # type: ignore[arg-type]  # checked by the store
        shard_size=shard_size,
        quiet=quiet,
    )
    print_bad_files(result.bad)
    print(f"{out}: {result.items - len(result.bad):,} of {result.items:,} stored")
    if len(result.bad) == result.items:
        raise typer.Exit(1)


@app.command("show")
def features_show(
    store: Annotated[Path, typer.Argument(help="A feature store.")],
    samples: Annotated[int, typer.Option(min=0, help="Number of items to print labels of.")] = 5,
) -> None:
    """Describe a feature store: size, settings, and labels of a few items."""
    from rich.table import Table

    from polyglance.vision.labels import commonest_labels
    from polyglance.vision.store import FeatureStore

    opened = FeatureStore(store)
    info = opened.info
    print(
        f"{store}: {len(opened):,} items, {info.width} wide, {info.dtype}, {len(opened.bad):,} bad"
    )
    print(", ".join(f"{name} {value}" for name, value in info.made_by.items()))
    table = Table("item", "tokens", "labels, most frequent first", box=None)
    for key in list(opened)[:samples]:
        tokens = opened[key]
        table.add_row(key, str(len(tokens)), ", ".join(commonest_labels(tokens)))
    console().print(table)


@app.command("mentions")
def features_mentions(
    store: Annotated[Path, typer.Argument(help="A feature store with labels.")],
    manifest: Annotated[Path, typer.Argument(help="Captions of its pictures.")],
    classes: Annotated[str, typer.Option(help="What labels are: coco or imagenet.")] = "coco",
    strict: Strict = False,
) -> None:
    """Print how many captions mention a label of their picture, by language."""
    from polyglance.records import read_manifest
    from polyglance.vision.label_mentions import count_mentions
    from polyglance.vision.store import FeatureStore

    problems = Problems(strict=strict)
    records = read_manifest(manifest, problems)
    counts = count_mentions(records, FeatureStore(store), classes)  # type: ignore[arg-type]
    print_skipped(problems)
    if not counts:
        print(f"{manifest} has no caption of a picture in {store}, in a language with names")
        raise typer.Exit(1)
    for language, found in counts.items():
        print(f"{language}: {found.share:.1%} of {found.captions:,} captions")
