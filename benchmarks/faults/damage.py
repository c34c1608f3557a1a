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

    python -m benchmarks.faults --only flipped_bytes

Cases run on all cores; each is noted in results/damage.partial.jsonl, from which the same command
goes on after it was killed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.faults.grid_encoder import GridEncoder, unit_rows
from benchmarks.results_io import RESULTS, environment
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.search.repair import repair
from polyglance.search.sqlite_pages import PAGE_SIZE, free_pages
from polyglance.search.store import Entry, FileSignature, Item

DEADLINE = 60.0
"""Seconds that a step may take; it takes a tenth of a second."""
STEPS = ("search", "verify", "repair")
OUTCOMES = ("right", "refused", "wrong", "traceback", "endless")
_KINDS = {2: "index, inner", 5: "table, inner", 10: "index, leaf", 13: "table, leaf"}
_LENGTHS = (1, 1, 1, 4, 64)
"""How many bytes are changed at a place."""

Answers = list[Any]


@dataclass(frozen=True)
class Case:
    """One damaged copy."""

    number: int
    place: int
    kind: str
    """The kind of the page."""
    content: bytes
    """What the file has at that place instead."""


def partial_log(out: Path | None) -> Path:
    """Return the file of the cases that are done, from which a run that was killed goes on."""
    return (RESULTS if out is None else out) / "damage.partial.jsonl"


def measure(
    count: int,
    pictures: int,
    seed: int,
    *,
    log: Path,
    workers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Damage a library at ``count`` places.

    Cases that did not end right or refused are printed, and the counts every 100 cases.

    Args:
        count: Number of damaged copies.
        pictures: Number of pictures in the library; there are a tenth as many clips.
        seed: Seed of the pictures and of the places.
        log: Where each case is noted when it is done, until all are. Cases that it has are not
            run again, if it is of the same settings and the same commit.
        workers: Cases that run at once.

    Yields:
        How often each step ended how, and how often for each kind of page: every 100 cases, and
        at the end.
    """
    head = {"count": count, "pictures": pictures, "seed": seed, "commit": environment()["commit"]}
    results = _read_log(log, head)
    if results:
        print(f"{len(results)} of {count} cases are done: see {log}", flush=True)
    if len(results) < count:
        yield from _run_cases(results, head, log, workers)
    yield _count(list(results.values()), pictures)
    if len(results) == count:
        log.unlink()


def _run_cases(
    results: dict[int, dict[str, Any]], head: dict[str, Any], log: Path, workers: int
) -> Iterator[dict[str, Any]]:
    """Run the cases that are not among the results, and add theirs; see `measure`."""
    count, pictures, seed = head["count"], head["pictures"], head["seed"]
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, log.open("a") as file:
        file.write("\n" if results else json.dumps(head) + "\n")  # the last line may be cut
        os.environ["POLYGLANCE_CONFIG"] = scratch
        folder = Path(scratch)
        # In a process of its own: what decodes pictures is not shared with the cases.
        _, text = run_with_deadline(lambda: ("right", str(build_library(folder, pictures, seed))))
        path = Path(text)
        work = partial(run_case, folder, path, expected=answers(path))
        waiting = [case for case in cases(path, count, seed) if case.number not in results]
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            for future in as_completed([pool.submit(work, case) for case in waiting]):
                result = future.result()
                results[result["number"]] = result
                file.write(json.dumps(result) + "\n")
                file.flush()
                _report(result)
                if len(results) % 100 == 0 and len(results) < count:
                    yield _count(list(results.values()), pictures)


def _read_log(log: Path, head: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the cases that are done, by number; a log of other settings is removed."""
    try:
        first, *lines = log.read_text().splitlines()
        if json.loads(first) == head:
            whole = [line for line in lines if line.endswith("}")]  # the last may be cut
            return {result["number"]: result for result in map(json.loads, whole)}
    except (OSError, ValueError):
        pass
    log.unlink(missing_ok=True)
    return {}


def _report(result: dict[str, Any]) -> None:
    place = f"{result['number']} at {result['place']} ({result['kind']})"
    for step, (outcome, text) in result["steps"].items():
        if outcome not in ("right", "refused"):
            print(place, step, outcome, text, flush=True)
    if _is_unfound(result):
        print(place, "not found by verify", result["steps"], flush=True)


def _is_unfound(result: dict[str, Any]) -> bool:
    """Return whether a search refused and verify found nothing, which leaves no way out."""
    return result["steps"]["search"][0] == "refused" and result["steps"]["verify"][0] == "right"


def _count(results: list[dict[str, Any]], pictures: int) -> dict[str, Any]:
    outcomes = {step: Counter[str]() for step in STEPS}
    kinds: dict[str, Counter[str]] = {}
    for result in results:
        for step, (outcome, _) in result["steps"].items():
            outcomes[step][outcome] += 1
            kinds.setdefault(result["kind"], Counter())[outcome] += 1
    steps = {step: {name: outcomes[step][name] for name in OUTCOMES} for step in STEPS}
    print(f"{len(results)} cases: {steps}", flush=True)
    return {
        "places": len(results),
        "items": pictures + pictures // 10,
        "steps": steps,
        "kinds of pages": {
            kind: {name: counter[name] for name in OUTCOMES}
            for kind, counter in sorted(kinds.items())
        },
        "refused but not found by verify": sum(map(_is_unfound, results)),
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
            vectors = unit_rows(rng.uniform(0, 1, (5, 48)).astype(np.float32))
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
    """Yield damages of a file: half at any place, half spread over kinds of pages."""
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
        if number % 3:
            content = bytes([sound[place] ^ 1 << rng.randrange(8)])
        else:
            content = rng.randbytes(min(rng.choice(_LENGTHS), len(sound) - place))
        yield Case(number, place, pages[place // PAGE_SIZE], content)


def page_kinds(content: bytes) -> list[str]:
    """Return the kind of each page of a SQLite file."""
    free = free_pages(content)
    kinds = ["first"]
    for number in range(2, len(content) // PAGE_SIZE + 1):
        kind = _KINDS.get(content[(number - 1) * PAGE_SIZE], "overflow")
        kinds.append("free" if number in free else kind)
    return kinds


def run_case(folder: Path, sound: Path, case: Case, expected: Answers) -> dict[str, Any]:
    """Return how each step ends, and what it said."""
    place = folder / f"case {os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / sound.name
    content = bytearray(sound.read_bytes())
    content[case.place : case.place + len(case.content)] = case.content
    path.write_bytes(content)
    verified: dict[str, Callable[[], tuple[str, str]]] = {
        "search": lambda: _compare(answers(path), expected),
        "verify": lambda: _verify(path),
        "repair": lambda: _repair(path, expected),
    }
    steps = {step: run_with_deadline(work) for step, work in verified.items()}
    return {"number": case.number, "place": case.place, "kind": case.kind, "steps": steps}


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
