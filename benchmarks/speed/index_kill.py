"""Does an index that is killed twenty times end as one that was left alone?

Pictures are indexed by `polyglance index` in a process of its own, once undisturbed and then
again and again into new libraries, each killed (SIGKILL) at a random moment: when so many
pictures are in it, and up to a second later. Every time the library must open and verify, or
not exist yet, and the same command must end with the same content, to the byte. At last two
processes index into one library at once.

With `--postgres` the library is on a PostgreSQL server, and it is the server that is killed,
all its processes at once, and started again: five times during an index, which must go on by
itself and end with the content of a library in a file.

    python -m benchmarks.speed.index_kill --pictures FOLDER
    python -m benchmarks.speed.index_kill --pictures FOLDER --postgres
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
AT_ONCE = 5
"""Kills of a server during one index."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pictures", type=Path, required=True)
    options.add_argument("--count", type=int, default=500)
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--postgres", action="store_true", help="kill a server of PostgreSQL")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    measure = measured_on_postgres if chosen.postgres else measured
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "photos"
        folder.mkdir()
        for path in sorted(chosen.pictures.iterdir())[: chosen.count]:
            shutil.copyfile(path, folder / path.name)
        figures = measure(folder, Path(scratch), chosen.kills, random.Random(chosen.seed))
    write_results("index_kill_postgres" if chosen.postgres else "index_kill", figures, chosen.out)


def measured(folder: Path, scratch: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    began = time.monotonic()
    whole = scratch / "whole.polyglance"
    finish(start(folder, whole))
    seconds = time.monotonic() - began
    expected = contents(whole)
    print(f"{len(expected)} pictures undisturbed in {seconds:.1f} s", flush=True)
    trials = []
    for number in range(kills):
        trial = killed(folder, scratch / f"{number}.polyglance", rng, expected)
        print(f"kill {number + 1}: {trial}", flush=True)
        trials.append(trial)
    shared = scratch / "shared.polyglance"
    pair = [start(folder, shared) for _ in range(2)]
    for process in pair:
        finish(process)
    return {
        "pictures": len(expected),
        "undisturbed_s": round(seconds, 1),
        "kills": trials,
        "all_opened_and_verified": all(trial["damages"] == 0 for trial in trials),
        "all_ended_the_same": all(trial["same"] for trial in trials),
        "two_at_once_the_same": contents(shared) == expected,
    }


def killed(folder: Path, path: Path, rng: random.Random, expected: Contents) -> dict[str, Any]:
    """A kill, a look at what is left, and the same command once more."""
    process = start(folder, path)
    until = rng.randrange(len(expected))
    while process.poll() is None and kept_in(path) < until:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 1))  # from one batch to the next, and some; or while it starts
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = damages = 0
    try:
        with Library(path) as library:
            damages, kept = len(library.verify(files=True)), len(library)
    except LibraryNotFoundError:
        pass  # it was killed before there was one
    finish(start(folder, path))
    return {
        "had_ended": ended,
        "kept": kept,
        "damages": damages,
        "same": contents(path) == expected,
    }


def measured_on_postgres(
    folder: Path, scratch: Path, kills: int, rng: random.Random
) -> dict[str, Any]:
    from benchmarks.postgres_server import Server

    whole = scratch / "whole.polyglance"
    finish(start(folder, whole))
    expected = contents(whole)
    server = Server(fsync="on")
    try:
        began = time.monotonic()
        undisturbed = server.database()
        finish(start(folder, undisturbed))
        seconds = time.monotonic() - began
        print(f"{len(expected)} pictures undisturbed in {seconds:.1f} s", flush=True)
        same = [contents(undisturbed) == expected]
        trials: list[dict[str, Any]] = []
        while len(trials) < kills:
            url = server.database()
            process = start(folder, url)
            moments = sorted(rng.sample(range(len(expected)), min(AT_ONCE, kills - len(trials))))
            for until in moments:
                trials.append(server_killed(server, process, url, until, rng))
                print(f"kill {len(trials)}: {trials[-1]}", flush=True)
            finish(process)
            finish(start(folder, url))
            same.append(contents(url) == expected)
        shared = server.database()
        pair = [start(folder, shared) for _ in range(2)]
        for process in pair:
            finish(process)
        return {
            "pictures": len(expected),
            "undisturbed_s": round(seconds, 1),
            "kills": trials,
            "all_opened_and_verified": all(trial["damages"] == 0 for trial in trials),
            "all_ended_the_same": all(same),
            "two_at_once_the_same": contents(shared) == expected,
        }
    finally:
        server.close()


def server_killed(
    server: Any, process: subprocess.Popen[bytes], url: str, until: int, rng: random.Random
) -> dict[str, Any]:
    """A kill of the server while somebody indexes, and a look at what it has when it is back."""
    while process.poll() is None and kept_in(url) < until:
        time.sleep(0.05)
    time.sleep(rng.uniform(0, 1))
    ended = process.poll() is not None
    server.kill()
    time.sleep(rng.uniform(0, 2))
    began = time.monotonic()
    server.start()
    seconds = time.monotonic() - began
    kept = damages = 0
    with suppress(LibraryNotFoundError), Library(url) as library:
        damages, kept = len(library.verify(files=True)), len(library)
    return {"had_ended": ended, "kept": kept, "damages": damages, "back_s": round(seconds, 1)}


def kept_in(path: Path | str) -> int:
    """How many files a library has, while somebody writes it."""
    try:
        with Library(path) as library:
            return len(library)
    except LibraryNotFoundError:
        return 0


def start(folder: Path, library: Path | str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("polyglance")), "index", str(folder)]
    return subprocess.Popen([*command, "-l", str(library)], stdout=subprocess.DEVNULL)


def finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise SystemExit(f"indexing ended with status {process.returncode}")


def contents(path: Path | str) -> Contents:
    """All that a library holds of each file, but the numbers it goes by."""
    with Library(path) as library:
        return {
            entry.item.path: (entry.item, entry.vectors.tobytes(), entry.spans)
            for entry in library._store().entries()
        }


if __name__ == "__main__":
    main()
