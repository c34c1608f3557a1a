"""How much a search with all signals costs beside one by pixels alone, at 100,000 items.

A library of synthetic vectors has the names, dates and coordinates of a family's photographs over
twenty years. Each query is searched for in both ways, in turn, so that whatever else the machine
does slows both alike: without signals, and with names, dates, places and texts all on. The queries
have words of folders, dates in words and places in seven languages.

    python -m benchmarks.speed.signals
    python -m benchmarks.speed.signals --count 10000 --keep FOLDER

Writes results/signals.json.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import write_results
from polyglance.search.duplicates import pairs_path
from polyglance.search.library import Library
from polyglance.search.signals.word_index import words_path
from polyglance.search.store import Details, Entry, FileSignature, Item

BATCH = 10_000
ALL_SIGNALS = ("names", "dates", "places", "text")
EVENTS = (
    "Urlaub Italien", "Weihnachten", "Geburtstag Oma", "DCIM", "Camera Uploads", "WhatsApp",
    "Vacances Bretagne", "Wedding Anna", "ZooVisit", "Skiing", "春节", "رحلة", "Praha", "Natal",
)  # fmt: skip
CITIES = (
    (48.137, 11.575), (48.857, 2.352), (41.893, 12.483), (50.088, 14.421), (38.717, -9.139),
    (39.907, 116.397), (30.039, 31.236), (40.713, -74.006), (43.703, 7.266), (52.52, 13.405),
)  # fmt: skip
QUERIES = (
    "a dog on the beach in summer 2013", "children playing football last year in Munich",
    "Geburtstag Oma Kuchen", "ein Hund im Schnee, Winter 2011 in Prag",
    "une fille sur la plage à Nice en juillet 2009", "Wedding Anna dance",
    "pes na louce v létě 2012", "um cachorro na praia no verão de 2015 em Lisboa",
    "كلب على الشاطئ صيف 2014", "2016年夏天北京的孩子", "Urlaub Italien Rom 2018",
    "a red car in Paris", "people skiing at Christmas 2010", "two men in a boat yesterday",
    "un homme avec un chapeau l'été dernier", "Natal 2017 família", "ZooVisit elephant",
    "a bicycle leaning against a wall", "eine Katze auf dem Sofa", "春节 红灯笼 2019",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", type=Path, help="a folder for the library, which is used again")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    path = folder / f"signals-{options.count}.polyglance"
    figures: dict[str, Any] = {"items": options.count}
    if not path.exists():
        fill(path, options.count)
    for derived in (words_path(path), pairs_path(path)):
        derived.unlink(missing_ok=True)  # of an earlier run: they are timed
    with Library(path) as library:
        start = perf_counter()
        library.refresh_signals()
        figures["words_built_s"] = round(perf_counter() - start, 2)
        figures |= compare(library, options.rounds)
        figures |= stack(library)
    print(figures)
    write_results("signals", figures, options.out)
    if not options.keep:
        shutil.rmtree(folder)


def fill(path: Path, count: int) -> None:
    """Fill a library with unit vectors, names, dates and coordinates."""
    model, rng = polyglance.load(), np.random.default_rng(0)
    partial = path.with_name(f"filling-{path.name}")
    partial.unlink(missing_ok=True)
    with Library(partial, model=model.name) as library:
        store = library._store(create=True)
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            vectors = rng.standard_normal((size, model.width), np.float32) + 1
            # Every tenth picture belongs to a burst with the one before.
            follows = np.flatnonzero(np.arange(1, size) % 10 == 0) + 1
            vectors[follows] = vectors[follows - 1] + 0.1 * vectors[follows]
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            store.put(entries(vectors, start, count))
    partial.rename(path)


def entries(vectors: np.ndarray[Any, Any], start: int, count: int) -> Iterator[Entry]:
    """Yield the entries of photographs over twenty years, a few hundred of each event."""
    first, years = datetime(2006, 1, 1), timedelta(days=20 * 365)
    for number, vector in enumerate(vectors, start):
        taken = first + years * (number / count) + timedelta(seconds=2 * (number % 300))
        event = number // 300
        name = f"{EVENTS[event % len(EVENTS)]} {event}"
        path = f"/home/user/Pictures/{taken:%Y}/{name}/IMG_{taken:%Y%m%d}_{number:06d}.jpg"
        latitude, longitude = CITIES[event % len(CITIES)]
        item = Item(
            path, "picture", FileSignature(number, number), f"{number:032x}",
            taken.isoformat(timespec="seconds"), 4000, 3000,
        )  # fmt: skip
        # Two of three have coordinates, as phones write them and old cameras do not.
        details = Details(
            latitude=latitude + 0.01 * (event % 3) if event % 3 else None,
            longitude=longitude if event % 3 else None,
        )
        yield Entry(item, vector[None], details=details)


def compare(library: Library, rounds: int) -> dict[str, Any]:
    """Time each query without and with signals, in turn, by the clock and by the CPU.

    On a machine that does other work, the CPU time of a single query says more than the clock.
    """
    times: dict[str, list[float]] = {"plain": [], "signals": []}
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for query in QUERIES:
        library.search(query, k=20)
        library.search(query, k=20, off=ALL_SIGNALS)
        own: dict[str, list[float]] = {"plain": [], "signals": []}
        for _ in range(rounds):
            for name, off in (("plain", ALL_SIGNALS), ("signals", ())):
                start, cpu = perf_counter(), process_time()
                library.search(query, k=20, off=off)
                times[name].append(1000 * (perf_counter() - start))
                own[name].append(1000 * (process_time() - cpu))
        ratio = statistics.median(own["signals"]) / statistics.median(own["plain"])
        ratios[bool(library.understand(query).parts)].append(ratio)
    medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
    every = ratios[True] + ratios[False]
    return {
        "queries": len(QUERIES),
        "queries_with_a_date_or_place": len(ratios[True]),
        "median_ms": medians,
        "p95_ms": {name: round(_percentile(values, 95), 2) for name, values in times.items()},
        "ratio": round(medians["signals"] / medians["plain"], 3),
        "cpu_ratio": {
            "median": round(statistics.median(every), 3),
            "without_filters": round(statistics.median(ratios[False]), 3),
            "with_filters": round(statistics.median(ratios[True]), 3),
            "largest": round(max(every), 3),
        },
    }


def stack(library: Library) -> dict[str, Any]:
    """Time the search for duplicates among all items, and once more when nothing is new."""
    start = perf_counter()
    stacks = library.duplicates()
    first = perf_counter() - start
    start = perf_counter()
    library.duplicates()
    return {
        "stacks": len(stacks),
        "stacked_items": sum(len(one.members) for one in stacks),
        "stacks_first_s": round(first, 2),
        "stacks_again_s": round(perf_counter() - start, 3),
    }


def _percentile(values: Sequence[float], percent: int) -> float:
    return float(np.percentile(np.array(values), percent))


if __name__ == "__main__":
    main()
