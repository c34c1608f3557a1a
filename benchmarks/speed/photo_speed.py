"""How many photos of 12 megapixels are indexed a second: decoded, thumbnails made, encoded, stored.

Photos are made from a folder of pictures: enlarged, with an EXIF block, as JPEG and as HEIC in
tiles of 512 pixels with a preview, as phones write it; once as they are and once with the grain of
a sensor, which makes files three times as large, and decoding slower. They are the same on every
machine, and are kept below the temporary folder for the next run.

Folders of each kind are indexed in turns into new libraries, with the model and the decoders'
processes loaded, as in a run over thousands; what loading them takes is printed apart. Printed
beside: what decoding alone allows on one core, and what each step takes.

Vectors are compared with those of whole pictures, decoded at full size and computed as exported;
with `--data`, also recall on validation pictures that were enlarged in the same way.

    python -m benchmarks.speed.photo_speed --pictures FOLDER
    python -m benchmarks.speed.photo_speed --pictures FOLDER --data FOLDER    # has val.jsonl

Writes results/photo_speed.json.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import polyglance
from benchmarks.heif_files import heic
from benchmarks.results_io import write_results
from polyglance.encoders import image_sessions
from polyglance.encoders.model_folder import ModelFolder
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import read_manifest
from polyglance.search.files import hash_bytes, make_thumbnail
from polyglance.search.library import Library
from polyglance.utils.worker_pool import shared_pool
from polyglance.vision.pictures import decode_picture, decoding_side, to_square

SIZE = (4032, 3024)
"""Pixels of a phone's photo."""
GRAIN = 5.0
"""Standard deviation of the grain, of 255."""
QUALITY, CRF = 90, 18
KINDS = {"jpeg": 128, "jpeg with grain": 128, "heic": 64, "heic with grain": 64}
"""How many files of each kind are indexed: a few seconds."""
GOALS = {"jpeg": 28, "heic": 10}
"""Photos a second that two cores are to index."""
_PICTURES = ModelFolder.open().description.pictures
assert _PICTURES is not None
INPUT = _PICTURES.size
LANGUAGES = ("en", "de")
SPAWN = multiprocessing.get_context("spawn")
"""Forked, processes would have locks of this one's threads."""
_MAKE, _MODEL, _ORIENTATION, _EXIF_TAGS, _TAKEN = 0x10F, 0x110, 0x112, 0x8769, 0x9003


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, required=True, help="a folder of pictures")
    parser.add_argument("--distinct", type=int, default=6, help="photos that are made")
    parser.add_argument("--scale", type=float, default=1.0, help="files that are indexed, times")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a folder with val.jsonl, to measure recall")
    parser.add_argument("--recall", type=int, default=200, help="validation pictures")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    paths = sorted(path for path in options.pictures.iterdir() if path.suffix in (".jpg", ".webp"))
    photos = make_photos(paths[: options.distinct])
    with tempfile.TemporaryDirectory() as name:
        folders = copy_photos(photos, Path(name), options.scale)
        figures: dict[str, Any] = {
            "model": polyglance.load().name,
            "load_average_before": round(load, 2),
            "cores": os.cpu_count(),
            "megapixels": round(SIZE[0] * SIZE[1] / 1e6, 1),
            "megabytes": {kind: megabytes(made) for kind, made in photos.items()},
        }
        say("the steps on one core")
        figures["one_core"] = {kind: time_steps(made) for kind, made in photos.items()}
        say("indexing")
        figures |= time_indexing(folders, Path(name), options.rounds)
    say("vectors of whole pictures")
    figures["cosine_with_whole_pictures"] = {
        kind: compare_vectors(made) for kind, made in photos.items()
    }
    if options.data:
        say("recall")
        figures["recall"] = compare_recall(options.data, options.recall)
    for key, value in figures.items():
        print(f"{key}: {value}", flush=True)
    write_results("photo_speed", figures, options.out)


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


# ------------------------------------------------------------------------------ photos are made


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


def exif_block(number: int) -> bytes:
    """Return what a phone says of a photo; JPEGs of upright phones are to be turned."""
    exif = Image.Exif()
    exif[_MAKE], exif[_MODEL], exif[_ORIENTATION] = "Phone", "12", 6 if number % 2 else 1
    exif.get_ifd(_EXIF_TAGS)[_TAKEN] = f"2024:05:{1 + number % 28:02} 12:00:00"
    return exif.tobytes()


def jpeg(picture: Image.Image, exif: bytes = b"") -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY, exif=exif)
    return out.getvalue()


def make_photo(path: Path, number: int, kind: str) -> bytes:
    picture = enlarge(path)
    if "grain" in kind:
        picture = add_grain(picture, number)
    exif = exif_block(number)
    return heic(picture, crf=CRF, exif=exif, preview=320) if "heic" in kind else jpeg(picture, exif)


def make_photos(paths: list[Path]) -> dict[str, list[Path]]:
    """Return photos of each kind; those of an earlier run are used again."""
    names = " ".join(f"{path.name} {path.stat().st_size}" for path in paths)
    digest = hashlib.sha256(f"{names} {SIZE} {GRAIN} {QUALITY} {CRF} 1".encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"polyglance-photos-{digest}"
    folder.mkdir(exist_ok=True)
    photos: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=SPAWN) as pool:
        made = {}
        for kind, places in photos.items():
            for number, path in enumerate(paths):
                places.append(folder / f"{kind} {number}.{kind.split()[0]}")
                if not places[-1].exists():
                    made[places[-1]] = pool.submit(make_photo, path, number, kind)
        for place, content in made.items():
            place.with_suffix(".part").write_bytes(content.result())
            place.with_suffix(".part").replace(place)
            say(f"made {place}")
    return photos


def copy_photos(photos: dict[str, list[Path]], folder: Path, scale: float) -> dict[str, Path]:
    """Write each photo several times, with other bytes after the picture."""
    folders = {}
    for kind, paths in photos.items():
        folders[kind] = folder / kind
        folders[kind].mkdir()
        for copy in range(max(len(paths), round(scale * KINDS[kind]))):
            path = paths[copy % len(paths)]
            box = (12).to_bytes(4, "big") + b"free" + copy.to_bytes(4, "big")
            (folders[kind] / f"{copy:04}{path.suffix}").write_bytes(path.read_bytes() + box)
    return folders


def megabytes(paths: list[Path]) -> float:
    return round(statistics.mean(path.stat().st_size for path in paths) / 1e6, 2)


# --------------------------------------------------------------------------------- and measured


def time_steps(paths: list[Path]) -> dict[str, Any]:
    """Time the steps of each photo on one core, each the median in CPU time."""
    encoder = polyglance.load(threads=1)
    taken: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        taken.setdefault(name, []).append(1000 * (time.process_time() - start))
        return result

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
        picture = Image.fromarray(square.pixels)
        timed("encode", lambda picture=picture: encoder.encode_pictures([picture]))
    steps = {name: round(statistics.median(times[1:]), 1) for name, times in taken.items()}
    return {"cpu_ms": steps, "decoded_per_second": round(1000 / steps["decode"], 1)}


def time_indexing(folders: dict[str, Path], scratch: Path, rounds: int) -> dict[str, Any]:
    """Index folders in turns; return the rate of each round, and what loading takes."""
    shared_pool().close()
    start, before = time.monotonic(), cpu_seconds()
    encoder = polyglance.load()
    few = scratch / "few"
    few.mkdir()
    for kind, folder in folders.items():
        shutil.copytree(folder, few / kind, ignore=lambda _, names: sorted(names)[4:])
    with Library(scratch / "few.polyglance", model=encoder) as library:
        library.add(few, thumbnails=True)
    figures: dict[str, Any] = {"loaded_with_first_16_s": round(time.monotonic() - start, 1)}
    rates: dict[str, list[float]] = {kind: [] for kind in folders}
    cpu: dict[str, list[float]] = {kind: [] for kind in folders}
    for number in range(rounds):
        for kind in list(folders)[:: 1 if number % 2 else -1]:
            before = cpu_seconds()
            with Library(scratch / f"{kind}-{number}.polyglance", model=encoder) as library:
                report = library.add(folders[kind], thumbnails=True)
            assert not report.bad, report.bad
            rates[kind].append(report.added / report.seconds)
            cpu[kind].append(1000 * (cpu_seconds() - before) / report.added)
            say(f"{kind}: {rates[kind][-1]:.1f} a second, {cpu[kind][-1]:.0f} ms of CPU each")
    figures["photos_per_second"] = {
        kind: {
            "median": round(statistics.median(found), 1),
            "best": round(max(found), 1),
            "goal": GOALS[kind.split()[0]],
            "cpu_ms": round(statistics.median(cpu[kind]), 1),
        }
        for kind, found in rates.items()
    }
    return figures


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the decoders' processes, by /proc."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if os.getpid() in (int(stat.parent.name), int(fields[1])):
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def as_exported() -> Iterator[None]:
    """Compute models as they were exported, large convolutions in float16."""
    original = image_sessions.computes_float16
    image_sessions.computes_float16 = lambda: True
    try:
        yield
    finally:
        image_sessions.computes_float16 = original


def whole_vectors(pictures: Iterator[Image.Image]) -> NDArray[np.float32]:
    """Return vectors of whole pictures."""
    with as_exported():
        encoder = polyglance.load()
        squares = [picture.resize((INPUT, INPUT), Image.Resampling.BICUBIC) for picture in pictures]
        return encoder.encode_pictures(squares)


def compare_vectors(paths: list[Path]) -> dict[str, float]:
    vectors = polyglance.load().encode_pictures(paths)
    whole = whole_vectors(decode_picture(path.read_bytes(), path).image for path in paths)
    cosines = (vectors * whole).sum(1)
    return {"mean": round(float(cosines.mean()), 5), "least": round(float(cosines.min()), 5)}


def recall_squares(path: Path, number: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return a picture that was made a photo with grain: decoded as indexing does, and whole."""
    content = jpeg(add_grain(enlarge(path), number))
    small = decode_picture(content, "a.jpg", min_side=decoding_side(INPUT)).image
    with Image.open(io.BytesIO(content)) as opened:
        whole = opened.convert("RGB").resize((INPUT, INPUT), Image.Resampling.BICUBIC)
    return to_square(small, INPUT).pixels, np.asarray(whole)


def compare_recall(data: Path, count: int) -> dict[str, Any]:
    """Compare text-to-image recall of enlarged pictures, decoded as indexing does and whole."""
    records = list(read_manifest(data / "val.jsonl"))[:count]
    encoder = polyglance.load()
    paths = [data / str(record.image) for record in records]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=SPAWN) as pool:
        squares = list(pool.map(recall_squares, paths, range(len(paths))))
    indexed, whole = ([Image.fromarray(pair[way]) for pair in squares] for way in (0, 1))
    vectors = {
        "indexed": encoder.encode_pictures(indexed),
        "whole pictures": whole_vectors(iter(whole)),
    }
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
