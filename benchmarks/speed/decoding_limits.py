"""What decoding in processes with limits costs indexing.

Pictures are read, decoded and encoded a few at a time, in turns: with each file decoded in a
process with limits, as `polyglance index` does it, and in the threads of the indexing process,
without limits. So both ways meet the same load of the machine, and the vectors must be equal.
CPU time is of the indexing process and of the decoding processes; starting those, once a run, is
measured apart.

    python -m benchmarks.speed.decoding_limits --pictures FOLDER
    python -m benchmarks.speed.decoding_limits --pictures FOLDER --count 400 --rounds 3

Pictures are taken as they are, and some again as JPEGs of 12 megapixels, as phones make them.
Writes results/decoding_limits.json.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import polyglance
from benchmarks.results_io import write_results
from polyglance.encoders import Encoder
from polyglance.search import encoding
from polyglance.search.files import make_thumbnail
from polyglance.search.limited_decoding import LibraryPicture, decode_for_library
from polyglance.search.scan import ScannedFile, scan
from polyglance.search.store import Entry
from polyglance.utils.prefetch import THREADS
from polyglance.utils.worker_pool import shared_pool
from polyglance.vision.limited_decoding import DecodeLimits
from polyglance.vision.pictures import decode_picture

PHONE = (4000, 3000)
"""Pixels of a phone's picture."""
TURN = 16
"""Pictures decoded one way before the other has its turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, required=True, help="a folder")
    parser.add_argument("--count", type=int, default=320)
    parser.add_argument("--large", type=int, default=48, help="pictures of 12 megapixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    encoder = polyglance.load(threads=1)
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small", Path(name) / "large"
        paths = sorted(options.pictures.iterdir())[: options.count]
        small.mkdir()
        for path in paths:
            shutil.copyfile(path, small / path.name)
        enlarge(paths[: options.large], large)
        figures: dict[str, Any] = {
            "model": encoder.name,
            "load_average_before": round(load, 2),
            "start_cpu_s": measure_start(),
            "as_given": compare(small, encoder, options.rounds),
            "12_megapixels": compare(large, encoder, options.rounds),
        }
    write_results("decoding_limits", figures, options.out)


def enlarge(paths: list[Path], folder: Path) -> None:
    """Write pictures as JPEGs of a phone's size."""
    folder.mkdir()
    for path in paths:
        with Image.open(path) as opened:
            large = opened.convert("RGB").resize(PHONE, Image.Resampling.BICUBIC)
            large.save(folder / f"{path.stem}.jpg", quality=90)


def measure_start() -> float:
    """Return the CPU seconds of starting the decoding processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_processes()
    shared_pool().close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def start_processes() -> None:
    """Start as many decoding processes as threads wait for them, and have each import all."""
    tiny = io.BytesIO()
    Image.new("RGB", (8, 8)).save(tiny, "PNG")
    together = threading.Barrier(THREADS)

    def decode(_: int) -> None:
        together.wait()
        for _ in range(5):
            decode_for_library(tiny.getvalue(), "a.png", DecodeLimits(), min_side=8)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(decode, range(THREADS)))


def compare(folder: Path, encoder: Encoder, rounds: int) -> dict[str, Any]:
    """Encode a folder both ways, in turns; return what a picture takes, and the ratios."""
    files = [file for file in scan(str(folder)) if isinstance(file, ScannedFile)]
    turns = [files[start : start + TURN] for start in range(0, len(files), TURN)]
    ways = {"processes": nullcontext, "threads": in_threads}
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    start_processes()
    for number, turn in enumerate(turns * rounds):
        vectors = {}
        for way in list(ways)[:: 1 if number % 2 else -1]:
            with ways[way]():
                before, began = cpu(), time.perf_counter()
                vectors[way] = encode(turn, encoder)
                taken[way].append((cpu() - before, time.perf_counter() - began))
        assert np.array_equal(vectors["processes"], vectors["threads"])
    shared_pool().close()
    count = rounds * len(files)
    figures: dict[str, Any] = {"pictures": len(files), "rounds": rounds}
    for place, name in enumerate(("cpu", "wall")):
        sums = {way: sum(one[place] for one in taken[way]) for way in ways}
        ratios = [
            one[place] / other[place]
            for one, other in zip(taken["processes"], taken["threads"], strict=True)
        ]
        quartiles = statistics.quantiles(ratios, n=4)
        figures[name] = {
            **{f"{way}_ms": round(1000 * total / count, 2) for way, total in sums.items()},
            "ratio": round(sums["processes"] / sums["threads"], 4),
            "ratio_of_turns": dict(
                zip(("lower", "median", "upper"), (round(q, 4) for q in quartiles), strict=True)
            ),
        }
    return figures


def encode(files: list[ScannedFile], encoder: Encoder) -> np.ndarray[Any, Any]:
    """Return the vectors of files, in their order."""
    made = {}
    for batch in encoding.FileEncoder(lambda: encoder).encode_files(files):
        for entry in batch:
            assert isinstance(entry, Entry), entry
            made[entry.item.path] = entry.vectors[0]
    return np.stack([made[file.path] for file in files])


def cpu() -> float:
    """Return the CPU seconds of this process and of the decoding processes."""
    pids = [worker._process.pid for worker in shared_pool()._free]
    running = (Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii") for pid in pids)
    return time.process_time() + sum(int(line.split()[0]) for line in running) / 1e9


@contextmanager
def in_threads() -> Iterator[None]:
    """Decode in the threads that otherwise wait for the decoding processes."""

    def decode(
        data: bytes,
        path: str,
        limits: DecodeLimits,
        *,
        min_side: int,
        square: object,
        thumbnail: bool,
    ) -> LibraryPicture:
        decoded = decode_picture(data, path, min_side=min_side, max_pixels=limits.max_pixels)
        return LibraryPicture(
            decoded.image,
            decoded.width,
            decoded.height,
            decoded.metadata,
            make_thumbnail(decoded.image) if thumbnail else None,
        )

    original: Callable[..., LibraryPicture] = encoding.decode_for_library
    encoding.decode_for_library = decode
    try:
        yield
    finally:
        encoding.decode_for_library = original


if __name__ == "__main__":
    main()
