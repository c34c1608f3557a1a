"""Fill the sections on load, browsing and scrolling of the page on the server.

    python -m benchmarks.reports.serve_page

Reads results/serve_load.json, results/browsing.json and results/page_scroll.json; fills
docs/serve.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, RESULTS, read_results

PAGE = DOCS / "serve.md"
PHASES = {
    "quiet": "nobody else",
    "idle": "{idle:,} idle connections",
    "clients": "{clients} clients",
    "clients and idle": "both",
}


def main() -> None:
    """Fill the sections."""
    sections = {
        "load": ("serve_load", section),
        "browsing": ("browsing", browsing),
        "scrolling": ("page_scroll", scrolling),
    }
    pages.fill(
        PAGE,
        {
            mark: write(read_results(name))
            if (RESULTS / f"{name}.json").exists()
            else pages.NOT_MEASURED
            for mark, (name, write) in sections.items()
        },
    )


def browsing(results: Mapping[str, Any]) -> str:
    """Say how much CPU time the requests of a page take that browses."""
    first, changed = results["first_ms"], results["changed_ms"]
    repeated, filters = results["repeated_ms"], results["filters_ms"]
    slowest = max(filters, key=lambda name: filters[name]["months"])
    return (
        f"On {results['hardware']} ([browsing.json](../benchmarks/results/browsing.json)) the"
        f" first {results['page']} of {results['items']:,} items took {first['items']:.0f} ms of"
        f" CPU time, the months {first['months']:.0f} ms, and the indexed folders"
        f" {first['folders']:.0f} ms; after a file was added, {changed['items']:.0f} and"
        f" {changed['months']:.0f} ms. A page at a random place took"
        f" {repeated['a page anywhere']['median']:.0f} ms"
        f" (at most {repeated['a page anywhere']['max']:.0f}), the months under a filter up to"
        f" {filters[slowest]['months']:.0f} ms ({slowest}). Before it listens, the server checks"
        f" the tables and counts folders and dates, in"
        f" {sum(results['start_ms'].values()) / 1000:.1f} s."
    )


def scrolling(results: Mapping[str, Any]) -> str:
    """Say how soon pictures are shown, and how long frames are at each speed of scrolling."""
    first, whole = results["first_picture_ms"], results["window_full_ms"]
    rows = [
        [
            f"{name}, {part['pixels_a_second']:,} pixels a second"
            if "pixels_a_second" in part
            else f"{name} of the scrubber",
            f"{part['frames']:,}",
            f"{part['median_ms']:.0f} ms",
            f"{part['p99_ms']:.0f} ms",
            f"{part['longest_ms']:.0f} ms",
            f"{part['over_50_ms']}",
            f"{part['longest_task_cpu_ms']:.0f} ms",
        ]
        for name, part in results["scrolling"].items()
    ]
    header = ["scrolling", "frames", "median", "p99", "longest", "over 50 ms", "longest task (CPU)"]
    load = results["load_average_before"]
    beside = (
        ": other programs took most of the cores, which makes frames longer" if load > 2 else ""
    )
    return (
        f"With {results['items']:,} pictures on {results['hardware']}"
        f" ([page_scroll.json](../benchmarks/results/page_scroll.json)) the first picture was shown"
        f" in an open tab after {first['median']:.0f} ms (the slowest load:"
        f" {first['longest']:.0f} ms), and the window was full after {whole['median']:.0f} ms. The"
        f" grid, {results['height_pixels']:,} pixels high, had {results['nodes']:,} nodes.\n\n"
        + pages.table(header, rows)
        + f"\n\nBrowser and server shared these cores, without a graphics card; the load average"
        f" before was {load}{beside}."
    )


def section(results: Mapping[str, Any]) -> str:
    """Describe the responses, the other address's searches, and who took the cores."""
    return "\n\n".join((responses(results), table(results), costs(results)))


def responses(results: Mapping[str, Any]) -> str:
    """Say how the requests of all phases were answered."""
    statuses = results["statuses"]
    refused = sum(count for status, count in statuses.items() if status in ("404", "415", "422"))
    others = sum(
        count
        for phase in results["other_address"].values()
        for status, count in phase["statuses"].items()
        if status == "200"
    )
    uploads = sum(
        results[phase][kind]["statuses"].get("503", 0)
        for phase in ("by_request", "by_request_with_idle")
        for kind in ("upload", "hostile upload")
        if kind in results[phase]
    )
    beside, memory = results["by_request"], results["memory_mb"]
    unexpected = ", ".join(results["undocumented"])
    return (
        f"In {results['seconds'] / 60:.0f} minutes on {results['hardware']}"
        f" ([serve_load.json](../benchmarks/results/serve_load.json)) the server answered"
        f" {results['requests']:,} requests: {statuses['200']:,} succeeded, among them"
        f" {others:,} searches of the other address; {refused:,} invalid or malicious ones were"
        f" refused with 404, 415 or 422; and {statuses.get('503', 0):,} got 503,"
        f" {uploads:,} of them uploads, whose queue is short."
        + (
            f" Unexpected: {unexpected}."
            if unexpected
            else " There were no other responses and no lost connections."
        )
        + f" For a client, the median time was {seconds(beside['thumbnail']['p50_ms'])} for a"
        f" thumbnail, {seconds(beside['invalid']['p50_ms'])} for a refusal and"
        f" {seconds(beside['search']['p50_ms'])} for a search, most of it waiting for the other"
        f" clients. The process grew from {memory['before']} to {memory['peak']} MB, and the"
        f" decoder processes never took more than {memory['decoders_peak']} MB."
    )


def table(results: Mapping[str, Any]) -> str:
    """Format the other address's searches by phase, beside the cores that were busy."""
    fared, quiet = results["other_address"], results["other_address"]["quiet"]["p95_ms"]
    rows = []
    for phase, name in PHASES.items():
        busy = results["costs"][phase]["busy_cores"]
        rows.append(
            [
                name.format(idle=results["idle_connections"], clients=results["clients"]),
                f"{fared[phase]['p50_ms']} ms",
                f"{fared[phase]['p95_ms']} ms",
                f"{fared[phase]['p95_ms'] / quiet:.2f}",
                f"{busy['server']:.2f}",
                f"{busy['decoders']:.2f}",
                f"{busy['load generator'] + busy['other address']:.2f}",
            ]
        )
    header = [
        "searches of another address, beside", "median", "p95", "to quiet",
        "cores: server", "decoders", "clients",
    ]  # fmt: skip
    return pages.table(header, rows)


def costs(results: Mapping[str, Any]) -> str:
    """Say what shared the cores, and how much the load generator was late itself."""
    late = results["costs"]["clients and idle"]["generator_late_p95_ms"]
    load = results["load_average_before"]
    beside = ": other programs ran too, and slowed the quiet phases as well" if load >= 1 else ""
    return (
        f"Server, decoders and all clients shared these cores; the load generator itself woke up"
        f" {late:.0f} ms late at the 95th percentile. The load average before was {load}{beside}."
    )


def seconds(milliseconds: float) -> str:
    """Format a time."""
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


if __name__ == "__main__":
    main()
