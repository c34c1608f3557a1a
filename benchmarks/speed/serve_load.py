"""Two hundred clients and a thousand idle connections at `polyglance serve`.

    python -m benchmarks.speed.serve_load

A library of the packaged photographs is served by a real ``polyglance serve``. Each client sends
one request after another over a connection of its own: searches, thumbnails, invalid requests and
hostile files. Only documented statuses may come back. The idle connections come from the clients'
address, send nothing, and are opened again when the server closes them.

Phases alternate, so that they meet the same machine: nobody else, the idle connections, the
clients, both. In all of them another address searches, one query after another, and is timed in
a process of its own. Writes results/serve_load.json: responses by status, latency, how the other
address fared in each phase, how many cores the server, its decoder processes and those who load
it took (all share the machine's), and the peak memory of the server and its decoders.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.results_io import write_results
from benchmarks.speed.load_clients import (
    Responses,
    client,
    hold_idle,
    hostile_files,
    search_as_other,
)
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library

DOCUMENTED = {200, 304, 404, 408, 413, 415, 422, 503}
PHASES = {"quiet": (False, False), "idle": (False, True), "clients": (True, False),
          "clients and idle": (True, True)}  # fmt: skip
"""Whether there are clients, and idle connections."""
LATENESS_SECONDS = 0.02
"""How often the load generator looks whether it is late itself."""


@dataclass
class Costs:
    """What the cores did in the phases of one kind."""

    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lateness: list[float] = field(default_factory=list)
    """Seconds by which the load generator woke up too late."""

    def figures(self) -> dict[str, Any]:
        """Summarise as busy cores on average."""
        return {
            "seconds": round(self.seconds, 1),
            "busy_cores": {name: round(cpu / self.seconds, 2) for name, cpu in self.cpu.items()},
            "generator_late_p95_ms": round(1000 * float(np.percentile(self.lateness, 95)), 1),
        }

    @contextmanager
    def measure(self, process: int) -> Iterator[None]:
        """Add what the server and this process take meanwhile."""
        start, own, before = time.monotonic(), time.process_time(), cpu_seconds(process)
        yield
        server, decoders = cpu_seconds(process)
        self.seconds += time.monotonic() - start
        self.cpu["server"] += server - before[0]
        self.cpu["decoders"] += decoders - before[1]
        self.cpu["load generator"] += time.process_time() - own

    async def watch_lateness(self) -> None:
        """Note how late this process's event loop is, until cancelled."""
        while True:
            start = time.monotonic()
            await asyncio.sleep(LATENESS_SECONDS)
            self.lateness.append(time.monotonic() - start - LATENESS_SECONDS)


def resident_bytes(process: int) -> tuple[int, int]:
    """Return the resident memory of a process, and of its children."""
    own, children = 0, 0
    command = Path(f"/proc/{process}/cmdline").read_bytes()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line
            )
            # A child that has not started its program yet (vfork) shows its parent's memory.
            forked = status.with_name("cmdline").read_bytes() == command
        except OSError:  # it has just ended
            continue
        size = 1024 * int(fields.get("VmRSS", "0 kB").split()[0])
        if fields["Pid"] == str(process):
            own = size
        elif fields["PPid"] == str(process) and not forked:
            children += size
    return own, children


def cpu_seconds(process: int) -> tuple[float, float]:
    """Return the CPU time of a process, and that of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = (
        int(value) / os.sysconf("SC_CLK_TCK") for value in fields[11:15]
    )
    return user + system, children_user + children_system


@contextmanager
def serving(library: Path) -> Iterator[tuple[int, int]]:
    """Serve a library in a process; yield its id and port."""
    command = [sys.executable, "-m", "polyglance", "serve", "-l", str(library), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().split()[-1]).port
        assert port is not None
        try:
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the server did not shut down cleanly"


async def load(
    process: int,
    port: int,
    items: int,
    *,
    clients: int,
    idle: int,
    seconds: float,
    rounds: int,
) -> dict[str, object]:
    """Run the phases in turn and summarise the responses.

    Args:
        process: Id of the server's process.
        port: Its port.
        items: Number of pictures in its library.
        clients: Number of clients.
        idle: Number of idle connections.
        seconds: Seconds that each phase takes in all.
        rounds: How many times each phase comes.
    """
    responses = {phase: Responses() for phase in PHASES}
    costs = {phase: Costs() for phase in PHASES}
    others, opened, peak, uploads = Responses(), Counter[str](), [0, 0], hostile_files()
    before, start, load_average = resident_bytes(process)[0], time.monotonic(), os.getloadavg()[0]

    async def watch() -> None:
        while True:
            for i, size in enumerate(resident_bytes(process)):
                peak[i] = max(peak[i], size)
            await asyncio.sleep(0.25)

    watcher = asyncio.create_task(watch())
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, search_as_other, port, 0.1, 0)
        for number in range(rounds):
            for phase, (has_clients, has_idle) in PHASES.items():
                deadline = time.monotonic() + seconds / rounds
                work = [hold_idle(port, deadline, opened) for _ in range(idle * has_idle)]
                work += [
                    client(number * clients + n, port, items, uploads, deadline, responses[phase])
                    for n in range(clients * has_clients)
                ]
                lateness = asyncio.create_task(costs[phase].watch_lateness())
                with costs[phase].measure(process):
                    searches = loop.run_in_executor(
                        pool, search_as_other, port, seconds / rounds, number
                    )
                    await asyncio.gather(*work)
                    outcomes, cpu = await searches
                lateness.cancel()
                costs[phase].cpu["other address"] += cpu
                for outcome, taken in outcomes:
                    others.add(phase, outcome, taken)
    watcher.cancel()
    loaded = responses["clients"]
    total: Counter[str] = sum(
        (statuses for phase in responses.values() for statuses in phase.statuses.values()),
        sum(others.statuses.values(), Counter()),
    )
    undocumented = {s for s in total if not s.isdecimal() or int(s) not in DOCUMENTED}
    fared = others.figures()
    return {
        "clients": clients,
        "idle_connections": idle,
        "rounds": rounds,
        "load_average_before": round(load_average, 1),
        "seconds": round(time.monotonic() - start, 1),
        "requests": sum(total.values()),
        "statuses": dict(sorted(total.items())),
        "undocumented": sorted(undocumented),
        "by_request": loaded.figures(),
        "by_request_with_idle": responses["clients and idle"].figures(),
        "other_address": fared,
        "costs": {phase: cost.figures() for phase, cost in costs.items()},
        "idle": dict(opened),
        "p95_ratios": {
            "other address, idle connections to quiet": ratio(fared["idle"], fared["quiet"]),
            "other address, clients to quiet": ratio(fared["clients"], fared["quiet"]),
            "other address, clients and idle connections to clients": ratio(
                fared["clients and idle"], fared["clients"]
            ),
            "other address, clients and idle connections to quiet": ratio(
                fared["clients and idle"], fared["quiet"]
            ),
            "clients' searches, with idle connections to without": ratio(
                responses["clients and idle"].figures()["search"], loaded.figures()["search"]
            ),
        },
        "memory_mb": {
            "before": round(before / 1e6),
            "peak": round(peak[0] / 1e6),
            "after": round(resident_bytes(process)[0] / 1e6),
            "decoders_peak": round(peak[1] / 1e6),
        },
    }


def ratio(loaded: dict[str, Any], quiet: dict[str, Any]) -> float:
    """Return how many times slower the slowest of twenty searches became."""
    times = [float(figures["p95_ms"]) for figures in (loaded, quiet)]
    return round(times[0] / max(1.0, times[1]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60, help="of each phase, in all rounds")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, help="another folder for serve_load.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my.polyglance"
        with Library(path) as library:
            library.add(FOLDER)
            items = len(library)
        with serving(path) as (process, port):
            figures = asyncio.run(
                load(
                    process,
                    port,
                    items,
                    clients=options.clients,
                    idle=options.idle,
                    seconds=options.seconds,
                    rounds=options.rounds,
                )
            )
    write_results("serve_load", {"pictures": items, **figures}, options.out)
    for name in ("statuses", "other_address", "p95_ratios", "costs", "memory_mb"):
        print(name, figures[name])
    if figures["undocumented"]:
        sys.exit(f"undocumented responses: {figures['undocumented']}")


if __name__ == "__main__":
    main()
