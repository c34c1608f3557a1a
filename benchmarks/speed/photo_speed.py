"""How many photos of 12 megapixels are indexed a second: decoded, thumbnails made, encoded, stored.

Photos are made from a folder of pictures: enlarged, as JPEG and as HEIC in tiles of 512 pixels as
phones write it; once as they are and once with the grain of a sensor, which makes files three
times as large, and decoding slower. They are the same on every machine. Folders of each kind are
indexed in turns into new libraries, JPEG also as earlier versions did it: decoded for twice the
encoder's input, large convolutions in float16. Printed beside: what decoding alone allows on one
core, and what each step takes.

Vectors are compared with those of whole pictures, decoded at full size and computed as exported;
with `--data`, also recall on validation pictures that were enlarged in the same way.

    python -m benchmarks.speed.photo_speed --pictures FOLDER
    python -m benchmarks.speed.photo_speed --pictures FOLDER --data FOLDER    # has val.jsonl

Writes results/photo_speed.json.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import polyglance
from benchmarks.heif_files import heic
from benchmarks.results_io import write_results
from polyglance.encoders import onnx_encoder
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import read_manifest
from polyglance.search import encoding
from polyglance.search.files import hash_bytes, make_thumbnail
from polyglance.search.library import Library
from polyglance.utils.worker_pool import shared_pool
from polyglance.vision.pictures import decode_picture, decoding_side, to_square

SIZE = (4032, 3024)
"""Pixels of a phone's photo."""
GRAIN = 5.0
"""Standard deviation of the grain, of 255."""
QUALITY, CRF = 90, 18
KINDS = ("jpeg", "jpeg with grain", "heic", "heic with grain")
INPUT = 224
LANGUAGES = ("en", "de")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, required=True, help="a folder of pictures")
    parser.add_argument("--distinct", type=int, default=16, help="photos that are made")
    parser.add_argument("--count", type=int, default=64, help="files of a kind that are indexed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a folder with val.jsonl, to measure recall")
    parser.add_argument("--recall", type=int, default=300, help="validation pictures")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    paths = sorted(path for path in options.pictures.iterdir() if path.suffix in (".jpg", ".webp"))
    with tempfile.TemporaryDirectory() as name:
        folders = make_photos(paths[: options.distinct], Path(name), options.count)
        figures: dict[str, Any] = {
            "model": polyglance.load().name,
            "load_average_before": round(load, 2),
            "cores": os.cpu_count(),
            "megapixels": round(SIZE[0] * SIZE[1] / 1e6, 1),
            "megabytes": {kind: megabytes(folder) for kind, folder in folders.items()},
            "one_core": {kind: time_steps(folder) for kind, folder in folders.items()},
            "photos_per_second": time_indexing(folders, Path(name), options.rounds),
            "cosine_with_whole_pictures": {
                kind: compare_vectors(folder, options.distinct) for kind, folder in folders.items()
            },
        }
        if options.data:
            figures["recall"] = compare_recall(options.data, options.recall)
    for key, value in figures.items():
        print(f"{key}: {value}", flush=True)
    write_results("photo_speed", figures, options.out)


def enlarge(path: Path) -> Image.Image:
    with Image.open(path) as opened:
        return opened.convert("RGB").resize(SIZE, Image.Resampling.BICUBIC)


def add_grain(picture: Image.Image, seed: int) -> Image.Image:
    """Add grain over two pixels, as it is left by phones."""
    pixels = np.asarray(picture)
    shape = SIZE[1] // 2, SIZE[0] // 2
    grain = np.random.default_rng(seed).normal(0, GRAIN, shape).astype(np.float32)
    large = np.asarray(Image.fromarray(grain).resize(SIZE, Image.Resampling.BICUBIC))
    return Image.fromarray((pixels + large[..., None]).round().clip(0, 255).astype(np.uint8))


def jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def make_photos(paths: list[Path], folder: Path, count: int) -> dict[str, Path]:
    """Write photos as JPEG and HEIC; some several times, with other bytes after the picture."""
    folders = {kind: folder / kind for kind in KINDS}
    for place in folders.values():
        place.mkdir()
    for number, path in enumerate(paths):
        plain = enlarge(path)
        for kind, place in folders.items():
            picture = add_grain(plain, number) if "grain" in kind else plain
            content = heic(picture, crf=CRF) if "heic" in kind else jpeg(picture)
            for copy in range(number, count, len(paths)):
                box = (12).to_bytes(4, "big") + b"free" + copy.to_bytes(4, "big")
                (place / f"{copy:04}.{kind.split()[0]}").write_bytes(content + box)
    return folders


def megabytes(folder: Path) -> float:
    sizes = [path.stat().st_size for path in folder.iterdir()]
    return round(statistics.mean(sizes) / 1e6, 2)


def time_steps(folder: Path) -> dict[str, Any]:
    """Time the steps of a few photos on one core, each the median in CPU time."""
    paths = sorted(folder.iterdir())[:8]
    encoder = polyglance.load(threads=1)
    taken: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        taken.setdefault(name, []).append(1000 * (time.process_time() - start))
        return result

    squares = []
    for path in [paths[0], *paths]:  # the first warms up
        data = path.read_bytes()
        timed("hash", lambda data=data: hash_bytes(data))
        image = timed(
            "decode",
            lambda data=data, path=path: (
                decode_picture(data, path, min_side=decoding_side(INPUT)).image
            ),
        )
        timed("thumbnail", lambda image=image: make_thumbnail(image))
        square = timed("resize", lambda image=image: to_square(image, INPUT))
        squares.append(Image.fromarray(square.pixels))
    steps = {name: round(statistics.median(times[1:]), 1) for name, times in taken.items()}
    encoder.encode_pictures(squares[:1])
    start = time.process_time()
    encoder.encode_pictures(squares[1:])
    steps["encode"] = round(1000 * (time.process_time() - start) / len(paths), 1)
    return {"cpu_ms": steps, "decoded_per_second": round(1000 / steps["decode"], 1)}


def time_indexing(folders: dict[str, Path], scratch: Path, rounds: int) -> dict[str, Any]:
    """Index folders in turns; return the rate of each round, processes and model loaded anew."""
    ways = {kind: (folder, nullcontext) for kind, folder in folders.items()}
    ways |= {f"{kind} as before": (folders[kind], as_before) for kind in KINDS if "jpeg" in kind}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            folder, context = ways[way]
            shared_pool().close()
            before = cpu_seconds()
            with context(), Library(scratch / f"{way}-{number}.polyglance") as library:
                report = library.add(folder, thumbnails=True)
            shared_pool().close()  # so that their time counts
            assert not report.bad, report.bad
            rates[way].append(report.added / report.seconds)
            cpu[way].append(1000 * (cpu_seconds() - before) / report.added)
            print(f"{way}: {rates[way][-1]:.1f} a second, {cpu[way][-1]:.0f} ms each", flush=True)
    return {
        way: {
            "median": round(statistics.median(found), 1),
            "best": round(max(found), 1),
            "cpu_ms": round(statistics.median(cpu[way]), 1),
        }
        for way, found in rates.items()
    }


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that have ended."""
    return sum(os.times()[:4])


@contextmanager
def as_before() -> Iterator[None]:
    """Decode for twice the encoder's input, and compute as exported."""
    patched = (
        (encoding, "decoding_side", lambda size: 2 * size),
        (onnx_encoder, "computes_float16", lambda: True),
    )
    originals = [getattr(module, name) for module, name, _ in patched]
    for module, name, other in patched:
        setattr(module, name, other)
    try:
        yield
    finally:
        for (module, name, _), original in zip(patched, originals, strict=True):
            setattr(module, name, original)


def whole_vectors(pictures: Iterator[Image.Image]) -> NDArray[np.float32]:
    """Return vectors of whole pictures, as exported."""
    with as_before():
        encoder = polyglance.load()
        squares = [picture.resize((INPUT, INPUT), Image.Resampling.BICUBIC) for picture in pictures]
        return encoder.encode_pictures(squares)


def compare_vectors(folder: Path, count: int) -> dict[str, float]:
    paths = sorted(folder.iterdir())[:count]
    vectors = polyglance.load().encode_pictures(paths)
    whole = whole_vectors(decode_picture(path.read_bytes(), path).image for path in paths)
    cosines = (vectors * whole).sum(1)
    return {"mean": round(float(cosines.mean()), 5), "least": round(float(cosines.min()), 5)}


def compare_recall(data: Path, count: int) -> dict[str, Any]:
    """Compare text-to-image recall of enlarged pictures, decoded as indexing does and whole."""
    records = list(read_manifest(data / "val.jsonl"))[:count]
    encoder = polyglance.load()
    indexed, whole = [], []
    for number, record in enumerate(records):
        content = jpeg(add_grain(enlarge(data / str(record.image)), number))
        small = decode_picture(content, "a.jpg", min_side=decoding_side(INPUT)).image
        indexed.append(encoder.encode_pictures([Image.fromarray(to_square(small, INPUT).pixels)]))
        with Image.open(io.BytesIO(content)) as opened:
            whole.append(opened.convert("RGB").resize((INPUT, INPUT), Image.Resampling.BICUBIC))
    vectors = {"indexed": np.concatenate(indexed), "whole pictures": whole_vectors(iter(whole))}
    figures: dict[str, Any] = {"pictures": len(records)}
    for language in LANGUAGES:
        texts = [
            (text, row)
            for row, record in enumerate(records)
            for text in record.captions.get(language, ())
        ]
        encoded = encoder.encode_texts([text for text, _ in texts])
        numbers = np.array([row for _, row in texts])
        figures[language] = {
            way: {
                f"R@{k}": round(float(recall), 2)
                for k, recall in evaluate_retrieval(
                    pictures, encoded, numbers
                ).text_to_image.recalls.items()
            }
            for way, pictures in vectors.items()
        }
    return figures


if __name__ == "__main__":
    main()
