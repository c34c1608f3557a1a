"""How fast are pictures encoded in bulk, beside plain indexing, and taken into a library?

The same pictures go through `polyglance index`, and through `polyglance encode` with one and
with two workers of one core each, and the library made of the shards is compared with the
indexed one. Besides: what a picture costs a core, decoding and computing apart; and the speed
and size of listing, of shards and of their import, with made-up vectors.

    python -m benchmarks.speed.bulk_encoding --pictures FOLDER                # all that are in it
    python -m benchmarks.speed.bulk_encoding --pictures FOLDER --manifest test.jsonl
    python -m benchmarks.speed.bulk_encoding --pictures FOLDER --count 200 --made-up 20000
    python -m benchmarks.speed.bulk_encoding --pictures FOLDER --postgres postgresql://...   # empty
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
from benchmarks.speed.library_speed import made_up
from polyglance.encoders import Encoder
from polyglance.records import read_manifest
from polyglance.search.bulk.encoding import encode
from polyglance.search.bulk.listing import list_files
from polyglance.search.bulk.shards import SHARD_SIZE, ShardFolder, ShardPlan
from polyglance.search.encoding import BATCH_SIZE, input_size
from polyglance.search.files import content_hash, downscale, make_thumbnail
from polyglance.search.library import Library
from polyglance.search.scan import ScannedFile
from polyglance.search.store import Entry
from polyglance.vision.pictures import read_picture

PIECE = 32
"""Pictures of a shard here: many shards of few pictures, to see the workers' speed."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pictures", type=Path, required=True, help="a folder")
    options.add_argument("--manifest", help="only the pictures of this manifest in it")
    options.add_argument("--count", type=int, help="only so many")
    options.add_argument("--workers", default="1,2")
    options.add_argument("--made-up", type=int, default=100_000)
    options.add_argument("--postgres", help="the address of an empty database, to import there")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        photos = copied(chosen.pictures, chosen.manifest, chosen.count, scratch / "photos")
        encoder = polyglance.load(threads=1)
        figures: dict[str, Any] = {
            "model": encoder.name,
            "width": encoder.width,
            "load_average_before": round(load, 2),
            "a_picture": a_picture(encoder, photos[:160]),
            "index": indexed(scratch / "photos", scratch / "indexed.polyglance"),
        }
        expected = contents(scratch / "indexed.polyglance")
        for workers in map(int, chosen.workers.split(",")):
            shards = scratch / f"shards-{workers}"
            found = encoded(scratch / "photos", shards, workers)
            library = scratch / f"{workers}.polyglance"
            with Library(library) as opened:
                opened.import_shards(shards)
            found["same_as_indexed"] = contents(library) == expected
            figures[f"encode_{workers}"] = told(f"{workers} workers", found)
        made = made_up_shards(scratch / "made-up", chosen.made_up)
        figures["made_up"] = imported(made, scratch / "made-up.polyglance")
        if chosen.postgres:
            figures["postgres"] = imported(made, chosen.postgres)
        figures["listing"] = told("listing", listing(scratch / "many", 20_000))
    write_results("bulk_encoding", figures, chosen.out)


def copied(folder: Path, manifest: str | None, count: int | None, to: Path) -> list[Path]:
    """Pictures in a folder of their own."""
    if manifest:
        records = read_manifest(folder / manifest)
        paths = [folder / str(record.image) for record in records if record.image]
    else:
        paths = [
            Path(file.path) for file in list_files([str(folder)]) if isinstance(file, ScannedFile)
        ]
    to.mkdir()
    return [Path(shutil.copyfile(path, to / path.name)) for path in paths[:count]]


def a_picture(encoder: Encoder, photos: list[Path]) -> dict[str, float]:
    """Milliseconds of one core, and bytes, of a picture in the mean."""
    encoder.encode_pictures(photos[:BATCH_SIZE])  # the model is opened
    least = 2 * input_size(encoder)
    began = process_time()
    hashes = [content_hash(str(path)) for path in photos]
    hashed = process_time()
    pictures = [downscale(read_picture(path, min_side=least), 3 * least // 2) for path in photos]
    decoded = process_time()
    for start in range(0, len(photos), BATCH_SIZE):
        encoder.encode_pictures(pictures[start : start + BATCH_SIZE])
    computed = process_time()
    small = [len(make_thumbnail(picture)) for picture in pictures]
    made_small = process_time()
    each = 1000 / len(hashes)
    return told(
        "a picture",
        {
            "hash_ms": round((hashed - began) * each, 2),
            "decode_ms": round((decoded - hashed) * each, 2),
            "encode_ms": round((computed - decoded) * each, 2),
            "thumbnail_ms": round((made_small - computed) * each, 2),
            "thumbnail_bytes": round(float(np.mean(small))),
            "file_bytes": round(float(np.mean([path.stat().st_size for path in photos]))),
        },
    )


def indexed(photos: Path, library: Path) -> dict[str, Any]:
    """`polyglance index` in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = perf_counter()
    command = [str(Path(sys.executable).with_name("polyglance")), "index", str(photos)]
    subprocess.run([*command, "-l", str(library)], check=True, stdout=subprocess.DEVNULL)
    seconds = perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with Library(library) as opened:
        count = len(opened)
    return told(
        "index",
        {
            "pictures": count,
            "seconds": round(seconds, 1),
            "pictures_per_second": round(count / seconds, 1),
            "processor_ms_a_picture": round(1000 * spent / count, 1),
        },
    )


def encoded(photos: Path, out: Path, workers: int) -> dict[str, Any]:
    """`polyglance encode` by so many workers, its start apart from its speed."""
    began = perf_counter()
    report = encode(photos, out=out, shard_size=PIECE, workers=workers)
    wall = perf_counter() - began
    times = sorted(path.stat().st_mtime for path in (out / "shards").iterdir())
    # From when each worker had made its first shard: Python, Ray and the model are there.
    running = PIECE * (len(times) - 1 - workers) / (times[-2] - times[workers - 1])
    return {
        "pictures": report.files,
        "seconds": round(wall, 1),
        "before_the_first_shard_s": round(wall - (times[-1] - times[0]), 1),
        "pictures_per_second": round(running, 1),
    }


def made_up_shards(path: Path, count: int) -> ShardFolder:
    """Shards of made-up vectors, as the default model would write them."""
    model, rng = polyglance.load(), np.random.default_rng(0)
    plan = ShardPlan(
        model.name, model.name, model.fingerprint, model.width, False, ("/made-up",), (), SHARD_SIZE
    )
    folder = ShardFolder(path)

    def entries() -> Iterator[Entry]:
        for number in range(count):
            vector = rng.standard_normal(model.width, np.float32)
            yield made_up(number, vector / np.linalg.norm(vector))

    items = (made_up(number, np.zeros(1, np.float32)).item for number in range(count))
    folder.start(plan, (ScannedFile(item.path, item.kind, item.signature) for item in items))
    waiting = entries()
    for number in folder.pending():
        folder.write_shard(number, list(islice(waiting, SHARD_SIZE)))
    return folder


def imported(shards: ShardFolder, place: Path | str) -> dict[str, Any]:
    """Shards into a new library, and once more."""
    with Library(place) as library:
        report = library.import_shards(shards.path)
        again = library.import_shards(shards.path)
        size = library.info().size
    return told(
        f"import into {place}",
        {
            "items": report.added,
            "seconds": round(report.seconds, 1),
            "items_per_second": round(report.added / report.seconds),
            "again_per_second": round(again.unchanged / again.seconds),
            "library_bytes_an_item": round(size / report.added),
            "shard_bytes_an_item": round(bytes_in(shards.path / "shards") / report.added),
            "list_bytes_an_item": round(bytes_in(shards.path / "files") / report.added),
        },
    )


def listing(folder: Path, count: int) -> dict[str, Any]:
    """Finding files, in folders of a thousand."""
    for number in range(count):
        path = folder / f"{number // 1000:03}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    began = perf_counter()
    found = sum(1 for _ in list_files([str(folder)]))
    return {"files": found, "files_per_second": round(found / (perf_counter() - began))}


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def told(what: str, figures: dict[str, Any]) -> dict[str, Any]:
    print(f"{what}: {figures}", flush=True)
    return figures


if __name__ == "__main__":
    main()
