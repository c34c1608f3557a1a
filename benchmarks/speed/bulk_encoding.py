"""How fast images are encoded in bulk, beside plain indexing, and imported into a library.

The same images go through `polyglance index`, and through `polyglance encode` with one and with
two workers of one core each; the library imported from the shards is compared with the indexed
one. Also: what an image costs a core, decoding and encoding apart; and the speed and size of
listing files, of shards and of their import, with synthetic vectors.

    python -m benchmarks.speed.bulk_encoding --pictures FOLDER                # all images in it
    python -m benchmarks.speed.bulk_encoding --pictures FOLDER --manifest test.jsonl
    python -m benchmarks.speed.bulk_encoding --pictures FOLDER --count 200 --synthetic 20000
    python -m benchmarks.speed.bulk_encoding --pictures FOLDER --postgres postgresql://...   # empty

Writes results/bulk_encoding.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import write_results
from benchmarks.speed.index_kill import contents
from benchmarks.speed.library_speed import report_figures, synthetic_entry
from polyglance.encoders import Encoder
from polyglance.records import read_manifest
from polyglance.search.bulk.encoding import encode
from polyglance.search.bulk.listing import list_files
from polyglance.search.bulk.shards import SHARD_SIZE, ShardFolder, ShardPlan
from polyglance.search.encoding import BATCH_SIZE, input_size
from polyglance.search.files import content_hash, make_thumbnail
from polyglance.search.library import Library
from polyglance.search.scan import ScannedFile
from polyglance.search.store import Entry
from polyglance.vision.pictures import downscale, read_picture

SMALL_SHARD = 32
"""Images per encoded shard: many small ones, to see the workers' speed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, required=True, help="a folder")
    parser.add_argument("--manifest", help="only the images of this manifest in it")
    parser.add_argument("--count", type=int, help="only so many images")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--synthetic", type=int, default=100_000)
    parser.add_argument("--postgres", help="address of an empty database to import into")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        photos = copy_images(options.pictures, options.manifest, options.count, scratch / "photos")
        encoder = polyglance.load(threads=1)
        figures: dict[str, Any] = {
            "model": encoder.name,
            "width": encoder.width,
            "load_average_before": round(load, 2),
            "per_image": measure_image(encoder, photos[:160]),
            "index": measure_index(scratch / "photos", scratch / "indexed.polyglance"),
        }
        expected = contents(scratch / "indexed.polyglance")
        for workers in map(int, options.workers.split(",")):
            shards = scratch / f"shards-{workers}"
            measured = measure_encode(scratch / "photos", shards, workers)
            library = scratch / f"{workers}.polyglance"
            with Library(library) as target:
                target.import_shards(shards)
            measured["same_as_indexed"] = contents(library) == expected
            figures[f"encode_{workers}"] = report_figures(f"{workers} workers", measured)
        synthetic = write_synthetic_shards(scratch / "synthetic", options.synthetic)
        figures["synthetic"] = measure_import(synthetic, scratch / "synthetic.polyglance")
        if options.postgres:
            figures["postgres"] = measure_import(synthetic, options.postgres)
        figures["listing"] = report_figures(
            "listing", measure_listing(scratch / "empty-files", 20_000)
        )
    write_results("bulk_encoding", figures, options.out)


def copy_images(folder: Path, manifest: str | None, count: int | None, to: Path) -> list[Path]:
    """Copy images into a folder of their own."""
    if manifest:
        records = read_manifest(folder / manifest)
        paths = [folder / str(record.image) for record in records if record.image]
    else:
        paths = [
            Path(file.path) for file in list_files([str(folder)]) if isinstance(file, ScannedFile)
        ]
    to.mkdir()
    return [Path(shutil.copyfile(path, to / path.name)) for path in paths[:count]]


def measure_image(encoder: Encoder, photos: list[Path]) -> dict[str, float]:
    """Return the mean milliseconds of one core and bytes of an image."""
    encoder.encode_pictures(photos[:BATCH_SIZE])  # loads the model
    min_size = 2 * input_size(encoder)
    begin = process_time()
    hashes = [content_hash(str(path)) for path in photos]
    hashed = process_time()
    pictures = [
        downscale(read_picture(path, min_side=min_size), 3 * min_size // 2) for path in photos
    ]
    decoded = process_time()
    for start in range(0, len(photos), BATCH_SIZE):
        encoder.encode_pictures(pictures[start : start + BATCH_SIZE])
    encoded = process_time()
    thumbnails = [len(make_thumbnail(picture)) for picture in pictures]
    shrunk_at = process_time()
    each = 1000 / len(hashes)
    return report_figures(
        "an image",
        {
            "hash_ms": round((hashed - begin) * each, 2),
            "decode_ms": round((decoded - hashed) * each, 2),
            "encode_ms": round((encoded - decoded) * each, 2),
            "thumbnail_ms": round((shrunk_at - encoded) * each, 2),
            "thumbnail_bytes": round(float(np.mean(thumbnails))),
            "file_bytes": round(float(np.mean([path.stat().st_size for path in photos]))),
        },
    )


def measure_index(photos: Path, library: Path) -> dict[str, Any]:
    """Run `polyglance index` in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = perf_counter()
    command = [str(Path(sys.executable).with_name("polyglance")), "index", str(photos)]
    subprocess.run([*command, "-l", str(library)], check=True, stdout=subprocess.DEVNULL)
    seconds = perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with Library(library) as opened:
        count = len(opened)
    return report_figures(
        "index",
        {
            "pictures": count,
            "seconds": round(seconds, 1),
            "pictures_per_second": round(count / seconds, 1),
            "cpu_ms_per_image": round(1000 * spent / count, 1),
        },
    )


def measure_encode(photos: Path, out: Path, workers: int) -> dict[str, Any]:
    """Run `polyglance encode`; measure its start-up and its speed apart."""
    start = perf_counter()
    report = encode(photos, out=out, shard_size=SMALL_SHARD, workers=workers)
    wall = perf_counter() - start
    times = sorted(path.stat().st_mtime for path in (out / "shards").iterdir())
    # Counted from when each worker has written its first shard: Python, Ray and model are loaded.
    rate = SMALL_SHARD * (len(times) - 1 - workers) / (times[-2] - times[workers - 1])
    return {
        "pictures": report.files,
        "seconds": round(wall, 1),
        "startup_s": round(wall - (times[-1] - times[0]), 1),
        "pictures_per_second": round(rate, 1),
    }


def write_synthetic_shards(path: Path, count: int) -> ShardFolder:
    """Write shards of synthetic vectors with the default model's settings."""
    model, rng = polyglance.load(), np.random.default_rng(0)
    plan = ShardPlan(
        model.name,
        model.name,
        model.fingerprint,
        model.width,
        False,
        ("/synthetic",),
        (),
        SHARD_SIZE,
    )
    folder = ShardFolder(path)

    def entries() -> Iterator[Entry]:
        for number in range(count):
            vector = rng.standard_normal(model.width, np.float32)
            yield synthetic_entry(number, vector / np.linalg.norm(vector))

    items = (synthetic_entry(number, np.zeros(1, np.float32)).item for number in range(count))
    folder.start(plan, (ScannedFile(item.path, item.kind, item.signature) for item in items))
    waiting = entries()
    for number in folder.pending():
        folder.write_shard(number, list(islice(waiting, SHARD_SIZE)))
    return folder


def measure_import(shards: ShardFolder, place: Path | str) -> dict[str, Any]:
    """Import shards into a new library, twice."""
    with Library(place) as library:
        report = library.import_shards(shards.path)
        second = library.import_shards(shards.path)
        size = library.info().size
    return report_figures(
        f"import into {place}",
        {
            "items": report.added,
            "seconds": round(report.seconds, 1),
            "items_per_second": round(report.added / report.seconds),
            "reimported_per_second": round(second.unchanged / second.seconds),
            "library_bytes_per_item": round(size / report.added),
            "shard_bytes_per_item": round(folder_bytes(shards.path / "shards") / report.added),
            "file_list_bytes_per_item": round(folder_bytes(shards.path / "files") / report.added),
        },
    )


def measure_listing(folder: Path, count: int) -> dict[str, Any]:
    """Time the listing of empty files, a thousand per folder."""
    for number in range(count):
        path = folder / f"{number // 1000:03}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    start = perf_counter()
    files = sum(1 for _ in list_files([str(folder)]))
    return {"files": files, "files_per_second": round(files / (perf_counter() - start))}


def folder_bytes(folder: Path) -> int:
    """Return the size of the files of a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


if __name__ == "__main__":
    main()
