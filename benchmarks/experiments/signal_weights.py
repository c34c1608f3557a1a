"""How much names of files, texts inside pictures, places and dates should count beside pixels.

Validation pictures get names: half of them what a camera writes, half one or two words of one of
their captions, as people name folders. Other captions of the same pictures are the queries, each
for its own picture. Reported is recall@10 for every weight, of pictures with names, of those
without, which names of others may push down, and of queries that are a name alone.

The other signals are measured on the same pictures, each beside captions:

- text: a sixth of the pictures show a made-up name, which few share, and some words that others'
  captions have. Asked for by the name and the caption, and by the name alone.
- place: a sixth has one of ten places, whose names some folders have, too: then a place is no
  filter. Asked for by the caption and the place.
- date: all were taken in some month. Asked for by the caption and "in summer" and the like, which
  one in five remembers wrongly.

    python -m benchmarks.experiments.signal_weights --data FOLDER      # has val.jsonl

Writes results/signal_weights.json. The test pictures are not used.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from benchmarks.experiments.calibration import encode_pictures
from benchmarks.results_io import read_results, write_results
from polyglance.encoders.protocol import Vectors
from polyglance.evaluation.calibration_data import LabelledPicture
from polyglance.records import Record, read_manifest
from polyglance.search.library import Library
from polyglance.search.query import Signal
from polyglance.search.signals import ranking
from polyglance.search.signals.words import query_words
from polyglance.search.store import Details, Entry, FileSignature, Filter, Item

WEIGHTS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
POWERS = (1.0, 1.5, 2.0)
OTHER_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
MADE_UP = ("Kodava", "Brunelli", "Tarskog", "Velmora", "Pinzetti", "Hastrup", "Quillon", "Ostrava",
           "Merzbach", "Zandvoort", "Calibra", "Fenwick", "Lombardo", "Ruppin", "Sakura",
           "Tirano", "Umbria", "Vexford", "Wolin", "Yarrow")  # fmt: skip
"""Names of shops and teams."""
PLACES = ("Lisbon", "Toronto", "Kyoto", "Hamburg", "Marrakesh", "Oslo", "Lima", "Dublin",
          "Prague", "Havana")  # fmt: skip
SEASONS = {"in winter": (12, 1, 2), "in spring": (3, 4, 5), "in summer": (6, 7, 8),
           "in autumn": (9, 10, 11)}  # fmt: skip
LANGUAGES = ("en", "de")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--cache", type=Path, help="vectors of pictures, .npz")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--without-names", action="store_true", help="keep the names' figures")
    options = parser.parse_args()
    records = list(read_manifest(options.data / "val.jsonl"))
    rng = random.Random(0)
    names = [make_name(number, record, rng) for number, record in enumerate(records)]
    with tempfile.TemporaryDirectory() as scratch:
        library = Library(Path(scratch) / "weights.polyglance", model=polyglance.load().name)
        pictures = [LabelledPicture(options.data / str(one.image), {}) for one in records]
        facts = make_facts(records)
        fill(library, encode_pictures(pictures, options.cache), names, facts)
        figures: dict[str, Any] = {"pictures": len(records), "recall@10": {}}
        if options.without_names:
            figures["recall@10"] |= read_results("signal_weights")["recall@10"]
        named = {} if options.without_names else make_queries(records, names, options.queries)
        for kind, queries in named.items():
            figures["recall@10"][kind] = measure(library, queries)
            print(kind, len(queries), figures["recall@10"][kind], flush=True)
        asked = make_other_queries(records, names, facts, options.queries)
        for kind, (signal, others) in asked.items():
            figures["recall@10"][kind] = measure_weight(library, signal, others)
            print(kind, len(others), figures["recall@10"][kind], flush=True)
        library.close()
    write_results("signal_weights", figures, options.out)


def make_name(number: int, record: Record, rng: random.Random) -> str:
    """Return a camera's name, words of the picture's last caption, or, of ten, a place."""
    camera = f"/photos/DCIM/IMG_{number:04d}.jpg"
    if number % 6 == 2 and number // 6 < len(PLACES):
        return f"/photos/{PLACES[number // 6]}/IMG_{number:04d}.jpg"
    language = LANGUAGES[number % 2]
    if number % 4 < 2 or not record.captions.get(language):
        return camera
    words = list(query_words(record.captions[language][-1]).values())
    chosen = rng.sample(words, min(len(words), 1 + number % 3 % 2))
    return f"/photos/{' '.join(chosen)}/IMG_{number:04d}.jpg" if chosen else camera


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a picture beside its name."""

    month: int
    text: str | None = None
    place: str | None = None


def make_facts(records: Sequence[Record]) -> list[Facts]:
    """Return a month for every picture, and a text or a place for some."""
    rng = random.Random(1)
    words = sorted({word for one in records for word in query_words(one.captions["en"][0])})
    facts = []
    for number in range(len(records)):
        month = rng.randint(1, 12)
        if number % 6 == 0:  # these have cameras' names, as those with places
            text = " ".join([MADE_UP[number // 6 % len(MADE_UP)], *rng.sample(words, 3)])
            facts.append(Facts(month, text=text))
        elif number % 6 == 1:
            facts.append(Facts(month, place=PLACES[number // 6 % len(PLACES)]))
        else:
            facts.append(Facts(month))
    return facts


def fill(library: Library, vectors: Vectors, names: Sequence[str], facts: Sequence[Facts]) -> None:
    """Store the pictures' vectors under their new names, and what is known of them."""
    store = library._store(create=True)
    store.put(
        Entry(
            Item(
                name, "picture", FileSignature(row, row), f"{row:032x}",
                f"2020-{fact.month:02}-15T00:00:00", 224, 224,
            ),
            vector[None],
            details=Details(place=fact.place, ocr_text=fact.text or ""),
        )
        for row, (name, vector, fact) in enumerate(zip(names, vectors, facts, strict=True))
    )  # fmt: skip
    library.refresh_signals()


def make_other_queries(
    records: Sequence[Record], names: Sequence[str], facts: Sequence[Facts], count: int
) -> dict[str, tuple[Signal, list[tuple[str, set[str]]]]]:
    """Return queries for texts, places and dates, with the names of the pictures they are for."""
    rng = random.Random(2)
    text, alone, place, date, none = (list[tuple[str, set[str]]]() for _ in range(5))
    for record, name, fact in zip(records, names, facts, strict=True):
        caption, own = record.captions["en"][0].rstrip(" ."), {name}
        if fact.text is not None:
            made_up = fact.text.split()[0]
            text.append((f"{made_up} {caption}", own))
            having = {
                other for other, one in zip(names, facts, strict=True)
                if one.text is not None and one.text.startswith(made_up)
            }  # fmt: skip
            alone.append((made_up, having))
        elif fact.place is not None:
            place.append((f"{caption} in {fact.place}", own))
        else:
            months = [season for season, own_months in SEASONS.items() if fact.month in own_months]
            season = months[0] if rng.random() < 0.8 else rng.choice(list(SEASONS))
            date.append((f"{caption} {season}", own))
            none.append((caption, own))
    kinds: dict[str, tuple[Signal, list[tuple[str, set[str]]]]] = {
        "text and caption": ("text", text), "text alone": ("text", alone),
        "caption, others have texts": ("text", none), "place and caption": ("place", place),
        "date and caption": ("date", date),
    }  # fmt: skip
    return {kind: (signal, asked[:count]) for kind, (signal, asked) in kinds.items()}


def measure_weight(
    library: Library, signal: Signal, queries: Sequence[tuple[str, set[str]]]
) -> dict[str, float]:
    """Return recall@10, in percent, by the weight of a signal; the others' weights stay."""
    encoder, index, signals = library._encoder(), library._index(), library._signals()
    before = ranking.WEIGHTS[signal]
    found: dict[float, list[bool]] = {weight: [] for weight in OTHER_WEIGHTS}
    for text, wanted in queries:
        understood = signals.understand(text)
        vector = encoder.encode_texts([understood.text])[0]
        for weight, hits in found.items():
            ranking.WEIGHTS[signal] = weight
            asked = signals.ask(understood, understood.text, ())
            neighbors = index.search(vector, 10, asked.restrict(Filter()), bonus=asked.bonus)
            items = library._store().lookup(neighbors.ids.tolist())
            hits.append(bool({item.path for item, _ in items.values()} & wanted))
    ranking.WEIGHTS[signal] = before
    return {
        f"weight {weight:g}": round(100 * float(np.mean(hit)), 1) for weight, hit in found.items()
    }


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
