"""CPU time of the requests by which a page browses a library of 100,000 items.

    python -m benchmarks.speed.browsing

The library is synthetic: dates over fifteen years, a folder a month, seven cameras, 300 places,
two clips in a hundred. What the server does at its start is measured by itself. Then the requests
go through the whole application, without a network: those of a page that is opened, the same after
a file was added, pages at random places, and filters. CPU time, not the clock. Writes
results/browsing.json.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from benchmarks.results_io import write_results
from polyglance.search.library import Library
from polyglance.search.store import Details, Entry, FileSignature, Item, ModelInfo
from polyglance.serve.app import create_app

WIDTH = 64
"""Of vectors, of which a page of items reads one each."""
BATCH = 2000
PAGE = 100
FILTERS: dict[str, dict[str, str]] = {
    "kind": {"kind": "clip"},
    "folder": {"folder": "photos/2015"},
    "all in a folder": {"folder": "photos"},
    "dates": {"since": "2012", "until": "2018-06"},
    "camera and place": {"camera": "Camera 3", "place": "Place 10"},
}


def main() -> None:
    """Fill a library, send the requests, and write their CPU times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        fill(folder / "big.polyglance", options.count)
        figures = measure(folder / "big.polyglance", options.rounds)
    finally:
        shutil.rmtree(folder)
    write_results("browsing", {"items": options.count, "page": PAGE, **figures}, options.out)


def fill(path: Path, count: int) -> None:
    """Store the items."""
    rng = np.random.default_rng(0)
    with Library(path) as library:
        store = library._store(create=True, like=ModelInfo("none", "", "f", WIDTH, "l"))
        store.add_place("walked", "/photos")
        for start in range(0, count, BATCH):
            vectors = rng.standard_normal((min(BATCH, count - start), WIDTH), np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            store.put(entries(start, vectors))


def entries(start: int, vectors: np.ndarray[Any, Any]) -> Iterator[Entry]:
    """Yield items with these vectors."""
    for number, vector in enumerate(vectors, start):
        chance = random.Random(number)
        taken = datetime(2010, 1, 1) + timedelta(seconds=chance.randrange(15 * 365 * 86_400))
        is_clip = number % 50 == 0
        item = Item(
            f"/photos/{taken:%Y/%m}/IMG_{number:06}.jpg",
            "clip" if is_clip else "picture",
            FileSignature(3_000_000 + number, number),
            f"{number:032x}",
            taken.isoformat(),
            4000,
            3000,
            5.0 if is_clip else None,
        )
        details = Details(None, 48.2, 16.4, f"Camera {number % 7}", f"Place {number % 300}")
        yield Entry(item, vector[None], ((0.0, 5.0),) if is_clip else (), details=details)


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Return CPU milliseconds of the first requests, and of repeated ones."""
    with Library(path) as library:
        client = TestClient(create_app(library), base_url="http://localhost")

        def get(address: str, **params: object) -> float:
            start = time.process_time()
            response = client.get(f"/api/{address}", params=params)
            milliseconds = 1000 * (time.process_time() - start)
            response.raise_for_status()
            return milliseconds

        get("languages")  # what the first request of all prepares
        browser, store = library.browser, library._store()
        start = {"tables checked": cpu(library.info), "timeline built": cpu(browser.timeline)}
        start["shapes read"] = cpu(lambda: browser.shapes(browser.view()))
        start["folders counted"] = get("folders")
        first = {"items": get("items", limit=PAGE), "months": get("timeline")}
        first["folders"] = get("folders")
        store.put(entries(len(library), np.eye(WIDTH, dtype=np.float32)[:1]))
        browser._current.clear()  # as two seconds later
        changed = {"items": get("items", limit=PAGE), "months": get("timeline")}
        total, chance = len(library), random.Random(0)
        anywhere = [get("items", limit=PAGE, offset=chance.randrange(total)) for _ in range(rounds)]
        repeated = {
            "a page anywhere": anywhere,
            "months": [get("timeline") for _ in range(rounds)],
            "neighbours": [
                get(f"items/{chance.randrange(1, total)}/neighbors") for _ in range(rounds)
            ],
        }
        filters = {
            name: {
                "months": get("timeline", **where),
                "first page": get("items", limit=PAGE, **where),
            }
            for name, where in FILTERS.items()
        }
    return {
        "start_ms": {name: round(value, 1) for name, value in start.items()},
        "first_ms": {name: round(value, 1) for name, value in first.items()},
        "changed_ms": {name: round(value, 1) for name, value in changed.items()},
        "repeated_ms": {
            name: {"median": round(statistics.median(times), 1), "max": round(max(times), 1)}
            for name, times in repeated.items()
        },
        "filters_ms": {
            name: {part: round(value, 1) for part, value in times.items()}
            for name, times in filters.items()
        },
    }


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of a call."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


if __name__ == "__main__":
    main()
