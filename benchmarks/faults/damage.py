"""What does a library do whose file is damaged at one of a thousand places?

A library of some hundred pictures and clips is copied, and a few bytes of the copy are changed:
half of them anywhere, half of them spread evenly over the kinds of pages that a SQLite file
has. Each copy is opened, searched, verified and repaired in a process of its own, which is
stopped after a deadline. Every answer is compared with that of the sound library. A step ends

- right: the answers are those of the sound library;
- refused: with one sentence of Polyglance;
- wrong: with other answers, and without a word;
- traceback: with any other error, or the death of the process;
- endless: at the deadline.

    python -m benchmarks.faults.damage --count 1000

Writes results/damage.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.results_io import write_results
from polyglance.encoders import Picture
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.search.repair import repair
from polyglance.search.sqlite_pages import PAGE_SIZE, free_pages
from polyglance.search.store import Entry, FileSignature, Item
from polyglance.vision.pictures import read_picture

DEADLINE = 60.0
"""Seconds that a step may take; it takes a tenth of a second."""
STEPS = ("search", "verify", "repair")
OUTCOMES = ("right", "refused", "wrong", "traceback", "endless")
_KINDS = {2: "index, inner", 5: "table, inner", 10: "index, leaf", 13: "table, leaf"}
_LENGTHS = (1, 1, 1, 4, 64)
"""How many bytes are changed at a place."""

Answers = list[Any]


class GridEncoder:
    """Encode pictures by the mean colours of 16 cells; needs no network and no file."""

    name, fingerprint, width = "grid", "grid-1", 48

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        """Return a vector drawn from each text: ``[len(texts), 48]``."""
        seeds = [int.from_bytes(text.encode()[:8].ljust(8), "big") for text in texts]
        rows = [np.random.default_rng(seed).uniform(0.1, 1, self.width) for seed in seeds]
        return _unit(np.array(rows, np.float32))

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """Return the mean colours of each picture: ``[len(pictures), 48]``."""
        images = [
            picture if isinstance(picture, Image.Image) else read_picture(picture)  # type: ignore[arg-type]
            for picture in pictures
        ]
        cells = [image.resize((4, 4), Image.Resampling.BOX) for image in images]
        rows = [np.asarray(cell, np.float32).reshape(-1) + 1 for cell in cells]
        return _unit(np.stack(rows))


@dataclass(frozen=True)
class Case:
    """One damaged copy."""

    place: int
    kind: str
    """The kind of the page."""
    content: bytes


def main() -> None:
    """Run the campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", action="store_true", help="print each case that went wrong")
    options = parser.parse_args()
    figures = measure(
        options.count,
        options.pictures,
        options.seed,
        max_seconds=options.max_seconds,
        show=options.show,
    )
    write_results("damage", figures, options.out)


def measure(
    count: int,
    pictures: int,
    seed: int,
    *,
    max_seconds: float = math.inf,
    show: bool = False,
) -> dict[str, Any]:
    """Damage a library at ``count`` places.

    Args:
        count: Number of damaged copies.
        pictures: Number of pictures in the library; there are a tenth as many clips.
        seed: Seed of the pictures and of the places.
        max_seconds: Begin no further case after so many.
        show: Print each case that did not end right or refused.

    Returns:
        How often each step ended how, and how often for each kind of page.
    """
    outcomes = {step: Counter[str]() for step in STEPS}
    kinds: dict[str, Counter[str]] = {}
    unfound = done = 0
    end = time.monotonic() + max_seconds
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["POLYGLANCE_CONFIG"] = scratch
        folder = Path(scratch)
        # In a process of its own: what decodes pictures is not shared with the cases.
        _, text = run_with_deadline(lambda: ("right", str(build_library(folder, pictures, seed))))
        path = Path(text)
        expected = answers(path)
        for number, case in enumerate(cases(path, count, seed)):
            if time.monotonic() > end:
                break
            done += 1
            results = run_case(folder, path, case, expected)
            kinds.setdefault(case.kind, Counter())
            for step, (outcome, text) in results.items():
                outcomes[step][outcome] += 1
                kinds[case.kind][outcome] += 1
                if show and outcome not in ("right", "refused"):
                    print(number, case.place, case.kind, step, outcome, text, flush=True)
            # A search that refused, and nothing found by verify, would leave no way out.
            if results["search"][0] == "refused" and results["verify"][0] == "right":
                unfound += 1
                if show:
                    print(number, case.place, case.kind, "not found by verify", results, flush=True)
    return {
        "places": done,
        "items": pictures + pictures // 10,
        "steps": {step: {name: outcomes[step][name] for name in OUTCOMES} for step in STEPS},
        "kinds of pages": {
            kind: {name: counter[name] for name in OUTCOMES} for kind, counter in kinds.items()
        },
        "refused but not found by verify": unfound,
    }


def build_library(folder: Path, pictures: int, seed: int) -> Path:
    """Index random pictures with thumbnails; add clips, a bad file and a removed folder."""
    rng = np.random.default_rng(seed)
    path = folder / "sound" / "library.polyglance"
    for number in range(pictures):
        place = folder / "pictures" / f"{number % 7}" / f"picture {number:04}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).resize((160, 120)).save(place)
        os.utime(place, (1.6e9 + 1e5 * number,) * 2)
    (folder / "pictures" / "torn.png").write_bytes(b"no picture")
    (folder / "pictures" / "private").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "pictures" / "private" / "secret.png")
    with Library(path, model=GridEncoder()) as library:
        library.add(folder / "pictures", thumbnails=True)
        library.remove(folder / "pictures" / "private")
        store = library._store()
        for number in range(pictures // 10):  # of which only the library knows
            vectors = _unit(rng.uniform(0, 1, (5, 48)).astype(np.float32))
            item = Item(f"/away/clip {number}.mp4", "clip", FileSignature(1, 2), f"{number:032x}",
                        "2020-01-01T00:00:00", 64, 48, 5.0)  # fmt: skip
            spans = tuple((float(second), second + 1.0) for second in range(5))
            store.put([Entry(item, vectors, spans, rng.bytes(6000))])
    return path


def answers(path: Path) -> Answers:
    """Return all that users ask of a library; scores are rounded, ids left out."""
    with Library(path, model=GridEncoder()) as library:
        found: Answers = []
        for number in range(10):
            hits = library.search(f"query {number}", k=10)
            filtered = library.search(
                f"query {number}",
                k=10,
                since="2020-09-20" if number % 2 else None,
                folder=str(Path(library.folders[0]) / str(number % 7)) if number % 3 else None,
                kind="picture" if number % 5 else "clip",
            )
            for hit in [*hits, *filtered]:
                media = library.get(hit.id)
                thumbnail = library.thumbnail(hit)
                known = (str(hit.path), hit.kind, hit.span, hit.taken, hit.width, hit.height)
                found.append(
                    [*known, round(hit.score, 3), thumbnail and len(thumbnail),
                     media and str(media.path)]
                )  # fmt: skip
        info = library.info()
        paths = list(library.paths())
    counts = replace(info.counts)
    return json.loads(
        json.dumps([found, str(counts), info.folders, info.excluded, paths], default=str)
    )


def cases(path: Path, count: int, seed: int) -> Iterator[Case]:
    """Yield damaged contents of a file: half at any place, half spread over kinds of pages."""
    rng = random.Random(seed)
    sound = path.read_bytes()
    pages = page_kinds(sound)
    names = sorted(set(pages))
    for number in range(count):
        if number % 2:
            place = rng.randrange(len(sound))
        else:
            kind = names[number // 2 % len(names)]
            page = rng.choice([index for index, name in enumerate(pages) if name == kind])
            # Of a page, its beginning says where everything is.
            inside = rng.randrange(16) if number % 4 else rng.randrange(PAGE_SIZE)
            place = page * PAGE_SIZE + inside
        content = bytearray(sound)
        if number % 3:
            content[place] ^= 1 << rng.randrange(8)
        else:
            length = rng.choice(_LENGTHS)
            content[place : place + length] = rng.randbytes(len(content[place : place + length]))
        yield Case(place, pages[place // PAGE_SIZE], bytes(content))


def page_kinds(content: bytes) -> list[str]:
    """Return the kind of each page of a SQLite file."""
    free = free_pages(content)
    kinds = ["first"]
    for number in range(2, len(content) // PAGE_SIZE + 1):
        kind = _KINDS.get(content[(number - 1) * PAGE_SIZE], "overflow")
        kinds.append("free" if number in free else kind)
    return kinds


def run_case(
    folder: Path, sound: Path, case: Case, expected: Answers
) -> dict[str, tuple[str, str]]:
    """Return how each step ends, and what it said."""
    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / sound.name
    path.write_bytes(case.content)
    verified: dict[str, Callable[[], tuple[str, str]]] = {
        "search": lambda: _compare(answers(path), expected),
        "verify": lambda: _verify(path),
        "repair": lambda: _repair(path, expected),
    }
    return {step: run_with_deadline(work) for step, work in verified.items()}


def _verify(path: Path) -> tuple[str, str]:
    with Library(path, model=GridEncoder()) as library:
        damage = library.verify()
    return ("refused", damage[0]) if damage else ("right", "")


def _repair(path: Path, expected: Answers) -> tuple[str, str]:
    done = repair(path, model=GridEncoder())
    outcome, text = _compare(answers(path), expected)
    if outcome == "wrong" and done.lost:
        return "refused", done.lost[0]  # said what is lost for good
    return outcome, text


def _compare(found: Answers, expected: Answers) -> tuple[str, str]:
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one != other:
            return "wrong", f"part {index}: {str(one)[:200]} instead of {str(other)[:200]}"
    return "right", ""


def run_with_deadline(work: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """Run work in a process of its own, which a damaged file may kill or keep for ever."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        try:
            result = work()
        except PolyglanceError as error:
            result = ("refused" if "\n" not in str(error) else "traceback", str(error))
        except BaseException:
            result = ("traceback", traceback.format_exc()[-1500:])
        os.write(write_end, json.dumps(result).encode()[:60_000])
        os._exit(0)
    os.close(write_end)
    end, content = time.monotonic() + DEADLINE, b""
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([read_end], [], [], end - time.monotonic())
            if not ready or not (block := os.read(read_end, 1 << 16)):
                break
            content += block
        else:
            ready = []
        if not ready:
            os.kill(child, signal.SIGKILL)
            return "endless", ""
    finally:
        os.close(read_end)
        _, status = os.waitpid(child, 0)
    if not content:
        return "traceback", f"the process ended with {status}"
    outcome, text = json.loads(content)
    return outcome, text


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


if __name__ == "__main__":
    main()
