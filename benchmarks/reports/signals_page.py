"""Fill the figures of signals and stacks.

    python -m benchmarks.reports.signals_page

Reads results/signals.json and signal_weights.json, fills docs/signals.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, read_results

PAGE = DOCS / "signals.md"
QUERIES = {
    "named": "a caption, of a picture with a name",
    "unnamed": "a caption, of a picture without",
    "name alone": "the name of its folder",
}


def main() -> None:
    fill(read_results("signals"), read_results("signal_weights"))


def fill(speed: Mapping[str, Any], weights: Mapping[str, Any], document: Path = PAGE) -> None:
    """Fill the tables of a document."""
    contents = {"weights": weight_table(weights), "speed": speed_text(speed)}
    pages.fill(document, contents)


def weight_table(figures: Mapping[str, Any]) -> str:
    """Format recall by weight, at the power that is used."""
    measured = figures["recall@10"]
    prefix = "power 1.5, weight "
    names = [name for name in measured["named"] if name.startswith(prefix)]
    header = ["recall@10 by", *(f"weight {name.removeprefix(prefix)}" for name in names)]
    rows = [
        [query, *(f"{measured[kind][name]:.1f}" for name in names)]
        for kind, query in QUERIES.items()
    ]
    return pages.table(header, rows)


def speed_text(figures: Mapping[str, Any]) -> str:
    """Say what signals and stacks cost."""
    medians, tails, cpu = figures["median_ms"], figures["p95_ms"], figures["cpu_ratio"]
    rows = [
        [name, f"{medians[key]:.0f}", f"{tails[key]:.0f}"]
        for key, name in (("plain", "pixels alone"), ("signals", "all signals"))
    ]
    return (
        pages.table(["a query, ms", "median", "95 %"], rows)
        + f"\n\n{figures['items']:,} items, {figures['queries']} queries, of which"
        f" {figures['queries_with_a_date_or_place']} have a date or a place; both ways in turn,"
        f" {figures['hardware']}, beside other work. With all signals a query takes"
        f" {figures['ratio']:.2f} times the time; of the CPU {cpu['without_filters']:.2f} times"
        f" without a date or a place, {cpu['with_filters']:.2f} times with one, and at most"
        f" {cpu['largest']:.2f} times: a filter leaves less"
        f" to compare. All stacks are found in {figures['stacks_first_s']:.0f} s, and listed again"
        f" in {figures['stacks_again_s']:.1f} s."
    )


if __name__ == "__main__":
    main()
