"""How much the names of files should count beside their pixels.

Validation pictures get names: half of them what a camera writes, half one or two words of one of
their captions, as people name folders. Other captions of the same pictures are the queries, each
for its own picture. Reported is recall@10 for every weight, of pictures with names, of those
without, which names of others may push down, and of queries that are a name alone.

    python -m benchmarks.experiments.signal_weights --data FOLDER      # has val.jsonl

Writes results/signal_weights.json. The test pictures are not used.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import write_results
from polyglance.records import Record, read_manifest
from polyglance.search.library import Library
from polyglance.search.signals import ranking
from polyglance.search.signals.words import query_words
from polyglance.search.store import Entry, FileSignature, Item

WEIGHTS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
POWERS = (1.0, 1.5, 2.0)
LANGUAGES = ("en", "de")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    records = list(read_manifest(options.data / "val.jsonl"))
    rng = random.Random(0)
    names = [make_name(number, record, rng) for number, record in enumerate(records)]
    with tempfile.TemporaryDirectory() as scratch:
        library = Library(Path(scratch) / "weights.polyglance", model=polyglance.load().name)
        fill(library, options.data, records, names)
        figures: dict[str, Any] = {"pictures": len(records), "recall@10": {}}
        for kind, queries in make_queries(records, names, options.queries).items():
            figures["recall@10"][kind] = measure(library, queries)
            print(kind, len(queries), figures["recall@10"][kind], flush=True)
        library.close()
    write_results("signal_weights", figures, options.out)


def make_name(number: int, record: Record, rng: random.Random) -> str:
    """Return a camera's name, or words of the picture's last caption in some language."""
    camera = f"/photos/DCIM/IMG_{number:04d}.jpg"
    language = LANGUAGES[number % 2]
    if number % 4 < 2 or not record.captions.get(language):
        return camera
    words = list(query_words(record.captions[language][-1]).values())
    chosen = rng.sample(words, min(len(words), 1 + number % 3 % 2))
    return f"/photos/{' '.join(chosen)}/IMG_{number:04d}.jpg" if chosen else camera


def fill(library: Library, data: Path, records: Sequence[Record], names: Sequence[str]) -> None:
    """Store the pictures' vectors under their new names."""
    store, encoder = library._store(create=True), library._encoder()
    for start in range(0, len(records), 64):
        block = range(start, min(start + 64, len(records)))
        vectors = encoder.encode_pictures([data / str(records[row].image) for row in block])
        store.put(
            Entry(
                Item(
                    names[row], "picture", FileSignature(row, row), f"{row:032x}",
                    "2020-01-01T00:00:00", 224, 224,
                ),
                vector[None],
            )
            for row, vector in zip(block, vectors, strict=True)
        )  # fmt: skip
    library.refresh_signals()


def make_queries(
    records: Sequence[Record], names: Sequence[str], count: int
) -> dict[str, list[tuple[str, set[str]]]]:
    """Return queries with the names of the pictures that they are for."""
    queries: dict[str, list[tuple[str, set[str]]]] = {"named": [], "unnamed": [], "name alone": []}
    for number, (record, name) in enumerate(zip(records, names, strict=True)):
        texts = record.captions.get(LANGUAGES[number % 2])
        if not texts:
            continue
        is_named = "DCIM" not in name
        queries["named" if is_named else "unnamed"].append((texts[0], {name}))
        if is_named:
            folder = name.split("/")[2]
            queries["name alone"].append((folder, {one for one in names if f"/{folder}/" in one}))
    return {kind: asked[:count] for kind, asked in queries.items()}


def measure(library: Library, queries: Sequence[tuple[str, set[str]]]) -> dict[str, float]:
    """Return recall@10, in percent, by power and weight."""
    encoder, index, signals = library._encoder(), library._index(), library._signals()
    settings = list(product(POWERS, WEIGHTS))
    found: dict[tuple[float, float], list[bool]] = {setting: [] for setting in settings}
    for text, wanted in queries:
        vector = encoder.encode_texts([text])[0]
        for power, weight in settings:
            ranking.WEIGHTS["name"], ranking.POWER = weight, power
            off = ("dates", "places", "text")
            asked = signals.ask(signals.understand(text, off=off), text, off)
            neighbors = index.search(vector, 10, bonus=asked.bonus)
            items = library._store().lookup(neighbors.ids.tolist())
            hits = {item.path for item, _ in items.values()}
            found[power, weight].append(bool(hits & wanted))
    return {
        f"power {power:g}, weight {weight:g}": round(100 * float(np.mean(hit)), 1)
        for (power, weight), hit in found.items()
    }


if __name__ == "__main__":
    main()
