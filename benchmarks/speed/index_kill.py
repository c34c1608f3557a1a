"""Does indexing that is killed twenty times end with the same library as uninterrupted indexing?

`polyglance index` runs in a process of its own, once uninterrupted and then into new libraries,
each time killed (SIGKILL) at a random moment: when a random number of images is in the library,
and up to a second later. Every time the library must open and verify, or not exist yet, and the
same command must end with the same content, to the byte. At last two processes index into one
library at once.

With `--postgres` the library is on a PostgreSQL server, and the server is killed, all its
processes at once, and started again: five times while indexing, which must continue by itself and
end with the content of a library in a file.

    python -m benchmarks.speed.index_kill --pictures FOLDER
    python -m benchmarks.speed.index_kill --pictures FOLDER --postgres

Writes results/index_kill.json or results/index_kill_postgres.json.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.results_io import write_results
from polyglance.search.library import Library
from polyglance.search.store import LibraryNotFoundError

Contents = dict[str, tuple[object, ...]]
KILLS_PER_INDEX = 5
"""Kills of the server while one library is indexed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="kill a PostgreSQL server")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    measure = measure_postgres if options.postgres else measure_files
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "photos"
        folder.mkdir()
        for path in sorted(options.pictures.iterdir())[: options.count]:
            shutil.copyfile(path, folder / path.name)
        figures = measure(folder, Path(scratch), options.kills, random.Random(options.seed))
    write_results("index_kill_postgres" if options.postgres else "index_kill", figures, options.out)


def measure_files(folder: Path, scratch: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    start_time = time.monotonic()
    reference = scratch / "reference.polyglance"
    finish(start(folder, reference))
    seconds = time.monotonic() - start_time
    expected = contents(reference)
    print(f"{len(expected)} pictures uninterrupted in {seconds:.1f} s", flush=True)
    trials = []
    for number in range(kills):
        trial = kill_indexing(folder, scratch / f"{number}.polyglance", rng, expected)
        print(f"kill {number + 1}: {trial}", flush=True)
        trials.append(trial)
    shared = scratch / "shared.polyglance"
    pair = [start(folder, shared) for _ in range(2)]
    for process in pair:
        finish(process)
    return {
        "pictures": len(expected),
        "uninterrupted_s": round(seconds, 1),
        "kills": trials,
        "all_verified": all(trial["damages"] == 0 for trial in trials),
        "all_identical": all(trial["identical"] for trial in trials),
        "concurrent_identical": contents(shared) == expected,
    }


def kill_indexing(
    folder: Path, path: Path, rng: random.Random, expected: Contents
) -> dict[str, Any]:
    """Kill indexing, verify what is left, and run the same command again."""
    process = start(folder, path)
    until = rng.randrange(len(expected))
    while process.poll() is None and count_files(path) < until:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 1))  # some batches later, or while it starts
    finished = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    files = damages = 0
    try:
        with Library(path) as library:
            damages, files = len(library.verify(files=True)), len(library)
    except LibraryNotFoundError:
        pass  # it was killed before it was created
    finish(start(folder, path))
    return {
        "finished_before_kill": finished,
        "files": files,
        "damages": damages,
        "identical": contents(path) == expected,
    }


def measure_postgres(folder: Path, scratch: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    from benchmarks.postgres_server import Server

    reference = scratch / "reference.polyglance"
    finish(start(folder, reference))
    expected = contents(reference)
    server = Server(fsync="on")
    try:
        start_time = time.monotonic()
        uninterrupted = server.database()
        finish(start(folder, uninterrupted))
        seconds = time.monotonic() - start_time
        print(f"{len(expected)} pictures uninterrupted in {seconds:.1f} s", flush=True)
        identical = [contents(uninterrupted) == expected]
        trials: list[dict[str, Any]] = []
        while len(trials) < kills:
            url = server.database()
            process = start(folder, url)
            moments = sorted(
                rng.sample(range(len(expected)), min(KILLS_PER_INDEX, kills - len(trials)))
            )
            for until in moments:
                trials.append(kill_server(server, process, url, until, rng))
                print(f"kill {len(trials)}: {trials[-1]}", flush=True)
            finish(process)
            finish(start(folder, url))
            identical.append(contents(url) == expected)
        shared = server.database()
        pair = [start(folder, shared) for _ in range(2)]
        for process in pair:
            finish(process)
        return {
            "pictures": len(expected),
            "uninterrupted_s": round(seconds, 1),
            "kills": trials,
            "all_verified": all(trial["damages"] == 0 for trial in trials),
            "all_identical": all(identical),
            "concurrent_identical": contents(shared) == expected,
        }
    finally:
        server.close()


def kill_server(
    server: Any, process: subprocess.Popen[bytes], url: str, until: int, rng: random.Random
) -> dict[str, Any]:
    """Kill the server while indexing, restart it, and verify the library."""
    while process.poll() is None and count_files(url) < until:
        time.sleep(0.05)
    time.sleep(rng.uniform(0, 1))
    finished = process.poll() is not None
    server.kill()
    time.sleep(rng.uniform(0, 2))
    start_time = time.monotonic()
    server.start()
    seconds = time.monotonic() - start_time
    files = damages = 0
    with suppress(LibraryNotFoundError), Library(url) as library:
        damages, files = len(library.verify(files=True)), len(library)
    return {
        "finished_before_kill": finished,
        "files": files,
        "damages": damages,
        "recovery_s": round(seconds, 1),
    }


def count_files(path: Path | str) -> int:
    """Return the number of files in a library while it is written."""
    try:
        with Library(path) as library:
            return len(library)
    except LibraryNotFoundError:
        return 0


def start(folder: Path, library: Path | str) -> subprocess.Popen[bytes]:
    """Start `polyglance index`."""
    command = [str(Path(sys.executable).with_name("polyglance")), "index", str(folder)]
    return subprocess.Popen([*command, "-l", str(library)], stdout=subprocess.DEVNULL)


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait until indexing ends, and check that it succeeded."""
    if process.wait():
        raise SystemExit(f"indexing ended with status {process.returncode}")


def contents(path: Path | str) -> Contents:
    """Return all that a library holds of each file, except for its ids."""
    with Library(path) as library:
        return {
            entry.item.path: (entry.item, entry.vectors.tobytes(), entry.spans)
            for entry in library._store().entries()
        }


if __name__ == "__main__":
    main()
