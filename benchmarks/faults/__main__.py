"""The fault campaign: what is lost, wrong, endless or a traceback when something fails?

Commands meet kills, swapped names, disks that go away, fail or fill up, flipped bytes, crashes of
a server, and damaged checkpoints. How each trial ends is counted; see docs/durability.md.

    python -m benchmarks.faults                         # all, some minutes
    python -m benchmarks.faults --only kills swaps --trials 100

Writes results/faults.json.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.faults import checkpoints, damage, indexing, servers
from benchmarks.faults.trials import OUTCOMES, Tally, settings_in
from benchmarks.results_io import RESULTS, read_results, write_results

NAME = "faults"
INDEXING = {
    "kills": indexing.kills,
    "swaps": indexing.swaps,
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
FAULTS = (*INDEXING, FLIPPED, *TRAINING)
DAMAGE_PER_TRIAL = 25
"""Damaged places and checkpoints cost little: there are that many for each trial of the others."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--trials", type=int, default=40, help="of each fault")
    parser.add_argument("--places", type=int, default=1000, help="flipped bytes of a library")
    parser.add_argument("--pictures", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.only, options.trials, options.places, options.pictures, options.seed)
    print_table(found)
    target = RESULTS if options.out is None else options.out
    earlier = read_results(NAME, target)["faults"] if (target / f"{NAME}.json").exists() else {}
    kept = {key: earlier[key] for key in earlier if key in FAULTS and key not in found}
    figures = {"pictures": options.pictures, "faults": kept | found}
    write_results(NAME, figures, options.out)
    if any(row[outcome] for row in found.values() for outcome in OUTCOMES[2:]):
        raise SystemExit("something was lost, wrong, endless or a traceback")


def run(only: list[str], trials: int, places: int, pictures: int, seed: int) -> dict[str, Any]:
    """Run faults.

    Args:
        only: Their keys, of `FAULTS`.
        trials: Trials of each.
        places: Places of a library's file to damage.
        pictures: Pictures in a library.
        seed: Seed of the random moments and places.

    Returns:
        How many trials of each ended how.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="polyglance-faults-") as folder:
        scratch = Path(folder)
        with settings_in(scratch):
            if set(only) & set(INDEXING):
                campaign = indexing.Campaign(scratch, pictures, random.Random(seed))
                for key in (key for key in INDEXING if key in only):
                    found[key] = _timed(lambda key=key: INDEXING[key](campaign, trials))
            for key in (key for key in TRAINING if key in only):
                rng = random.Random(seed)
                count = 5 * trials if key == "checkpoint_damage" else trials
                work = TRAINING[key]
                found[key] = _timed(lambda w=work, r=rng, c=count: w(scratch / "training", c, r))
        if FLIPPED in only:
            found[FLIPPED] = _timed(lambda: flipped_bytes(places, seed))
    return found


def flipped_bytes(places: int, seed: int) -> Tally:
    """Count the searches, verifications and repairs of `damage` as one fault."""
    tally = Tally("bytes flipped in a library's file")
    figures = damage.measure(places, 300, seed, show=True)
    for step in figures["steps"].values():
        tally.outcomes.update(step)
    return tally


def _timed(work: Any) -> dict[str, Any]:
    start = time.monotonic()
    tally: Tally = work()
    seconds = round(time.monotonic() - start, 1)
    return {"fault": tally.fault, **tally.as_json(), "seconds": seconds}


def print_table(found: dict[str, Any]) -> None:
    """Print the counts."""
    print(f"{'':36}{'trials':>8}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES))
    for row in found.values():
        counts = "".join(f"{row[outcome]:11}" for outcome in OUTCOMES)
        print(f"{row['fault']:36}{row['trials']:8}{counts}")


if __name__ == "__main__":
    main()
