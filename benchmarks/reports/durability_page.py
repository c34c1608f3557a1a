"""Fill the page of durability: how commands ended that met a fault.

    python -m benchmarks.reports.durability_page

Reads results/faults.json; fills docs/durability.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, RESULTS, read_results

PAGE = DOCS / "durability.md"
COLUMNS = {
    "right": "as without it",
    "refused": "refused in a sentence",
    "lost": "lost",
    "wrong": "wrong",
    "endless": "endless",
    "traceback": "traceback",
}


def main() -> None:
    """Fill the page."""
    measured = (RESULTS / "faults.json").exists()
    content = table(read_results("faults")) if measured else pages.NOT_MEASURED
    pages.fill(PAGE, {"faults": content})


def table(results: Mapping[str, Any]) -> str:
    """Format the counts, and what they add up to."""
    faults = results["faults"].values()
    rows = [
        [row["fault"], f"{row['trials']:,}", *(f"{row[key]:,}" for key in COLUMNS)]
        for row in faults
    ]
    total = sum(row["trials"] for row in faults)
    bad = {key: sum(row[key] for row in faults) for key in list(COLUMNS)[2:]}
    summary = (
        "nothing was lost, nothing wrong served, nothing endless, and there was no traceback"
        if not any(bad.values())
        else ", ".join(f"{count:,} {key}" for key, count in bad.items() if count)
    )
    flipped = results["faults"].get("flipped_bytes")
    # Each damaged copy is searched, verified and repaired.
    places = f" Bytes were flipped at {flipped['trials'] // 3:,} places." if flipped else ""
    header = ["fault", "trials", *COLUMNS.values()]
    return (
        f"{pages.table(header, rows)}\n\n"
        f"In {total:,} trials {summary} ({results['hardware']}, {results['date']}).{places}"
    )


if __name__ == "__main__":
    main()
