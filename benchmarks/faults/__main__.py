"""The fault campaign: what is lost, wrong, endless or a traceback when something fails?

Commands meet kills, swapped names, disks that go away, fail or fill up, flipped bytes, crashes of
a server, files made to harm decoders, and damaged checkpoints. How each trial ends is counted; see
docs/durability.md.

    python -m benchmarks.faults                         # all, some minutes
    python -m benchmarks.faults --only kills swaps --trials 100

Writes results/faults.json.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.faults import checkpoints, damage, hostile_files, indexing, servers
from benchmarks.faults.trials import OUTCOMES, Tally, settings_in
from benchmarks.results_io import RESULTS, read_results, write_results

NAME = "faults"
INDEXING = {
    "kills": indexing.kills,
    "swaps": indexing.swaps,
    "swaps_same_time": indexing.swaps_same_time,
    "folder_away": indexing.folder_away,
    "rights_lost": indexing.rights_lost,
    "reading_fails": indexing.reading_fails,
    "full_disk": indexing.full_disk,
    "server_crashes": servers.crashes,
}
TRAINING = {
    "training_kills": checkpoints.kills,
    "checkpoint_damage": checkpoints.damages,
    "training_full_disk": checkpoints.full_disk,
}
FLIPPED = "flipped_bytes"
HOSTILE = "hostile_files"
FAULTS = (*INDEXING, HOSTILE, FLIPPED, *TRAINING)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--trials", type=int, default=40, help="of each fault")
    parser.add_argument("--places", type=int, default=1000, help="flipped bytes of a library")
    parser.add_argument("--pictures", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    target = RESULTS if options.out is None else options.out
    exists = (target / f"{NAME}.json").exists()
    rows: dict[str, Any] = read_results(NAME, target)["faults"] if exists else {}
    found: dict[str, Any] = {}
    # After each fault, and 100 flipped bytes, so that one that hangs the machine loses no other.
    log = damage.partial_log(options.out)
    for key, row in run(
        options.only, options.trials, options.places, options.pictures, options.seed, log
    ):
        found[key] = rows[key] = row
        figures = {"faults": {name: rows[name] for name in FAULTS if name in rows}}
        write_results(NAME, figures, options.out)
    print_table(found)
    if any(row[outcome] for row in found.values() for outcome in OUTCOMES[2:]):
        raise SystemExit("something was lost, wrong, endless or a traceback")


def run(
    only: Sequence[str], trials: int, places: int, pictures: int, seed: int, log: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run faults, and yield how many trials of each ended how.

    Args:
        only: Their keys, of `FAULTS`.
        trials: Trials of each; of damaged checkpoints five times as many, of hostile files fifty.
        places: Places of a library's file to damage.
        pictures: Pictures in a library.
        seed: Seed of the random moments and places.
        log: Where each damaged place is noted, to go on after a kill.
    """
    with tempfile.TemporaryDirectory(prefix="polyglance-faults-") as folder:
        scratch = Path(folder)
        with settings_in(scratch):
            for number, key in enumerate(key for key in TRAINING if key in only):
                count = 5 * trials if key == "checkpoint_damage" else trials
                place = scratch / f"training{number}"
                yield key, _timed(TRAINING[key], place, count, random.Random(seed))
            if set(only) & set(INDEXING):
                campaign = indexing.Campaign(scratch, pictures, random.Random(seed))
                for key in (key for key in INDEXING if key in only):
                    yield key, _timed(INDEXING[key], campaign, trials)
        if HOSTILE in only:
            place = scratch / "hostile"
            yield (
                HOSTILE,
                _timed(hostile_files.files, place, 50 * trials, random.Random(seed)),
            )
        if FLIPPED in only:
            start = time.monotonic()
            parts = damage.measure(places, 300, seed, log=log, workers=os.cpu_count() or 1)
            for figures in parts:  # one for each 100 places
                yield FLIPPED, _row(count_damage(figures), start)


def count_damage(figures: Mapping[str, Any]) -> Tally:
    """Count the searches, verifications and repairs of `damage.measure` as one fault."""
    tally = Tally("bytes flipped in a library's file")
    for step in figures["steps"].values():
        tally.outcomes.update(step)
    return tally


def _timed(work: Callable[..., Tally], *arguments: Any) -> dict[str, Any]:
    start = time.monotonic()
    return _row(work(*arguments), start)


def _row(tally: Tally, start: float) -> dict[str, Any]:
    seconds = round(time.monotonic() - start, 1)
    return {"fault": tally.fault, **tally.as_json(), "date": date.today().isoformat(),
            "seconds": seconds}  # fmt: skip


def print_table(found: dict[str, Any]) -> None:
    """Print the counts."""
    print(f"{'':36}{'trials':>8}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES))
    for row in found.values():
        counts = "".join(f"{row[outcome]:11}" for outcome in OUTCOMES)
        print(f"{row['fault']:36}{row['trials']:8}{counts}")


if __name__ == "__main__":
    main()
