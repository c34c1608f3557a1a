"""Fill the page of MMP's results on MSVD: a Table 3 and a Table 6 of our own.

    python -m benchmarks.reports.mmp_page

Reads results/mmp_msvd.json, fills docs/results-msvd.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.results_io import DOCS, read_results

PAGE = DOCS / "results-msvd.md"
RECALLS = ("R@1", "R@5", "R@10")


def main() -> None:
    fill(read_results("mmp_msvd"))


def fill(figures: Mapping[str, Any], document: Path = PAGE) -> None:
    """Fill the tables of a document."""
    tables = {"table 3": table_3(figures), "table 6": table_6(figures), "how": how(figures)}
    pages.fill(document, tables)


def table_3(figures: Mapping[str, Any]) -> str:
    """Format the objectives: English to video."""
    header = ["objective", "trained on", "inter", "intra", "cross", *RECALLS]
    rows = []
    for name, measured in figures["settings"].items():
        languages, loss, terms = _parts(name)
        ticks = ["✓", *("✓" if term in terms else "" for term in ("intra", "cross"))]
        label = "Triplet" if loss == "triplet" else "NCE"
        label += ", a softmax per direction" if "symmetric" in terms else ""
        rows.append([label, languages, *ticks, *_recalls(measured, "en")])
    return pages.table(header, rows, text_columns=5)


def table_6(figures: Mapping[str, Any]) -> str:
    """Format the languages: English and Chinese to video."""
    header = ["trained on", "objective"]
    header += [f"{language} {recall}" for language in ("en", "zh") for recall in RECALLS]
    rows = []
    for name, measured in figures["settings"].items():
        languages, loss, terms = _parts(name)
        if loss == "nce" and "symmetric" not in terms:
            objective = " + ".join(["inter", *terms])
            recalls = [*_recalls(measured, "en"), *_recalls(measured, "zh")]
            rows.append([languages, objective, *recalls])
    return pages.table(header, rows, text_columns=2)


def how(figures: Mapping[str, Any]) -> str:
    """Say when, where and how this was measured."""
    seconds = statistics.mean(measured["seconds"] for measured in figures["settings"].values())
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(figures['settings'])} settings with {len(figures['seeds'])} seeds each,"
        f" {seconds:.0f} s of training a run with {figures['runs_at_once']} at once."
    )


def _parts(name: str) -> tuple[str, str, list[str]]:
    """Split the name of a setting into languages, loss and further terms."""
    languages, loss, *terms = name.split()
    return languages.replace("+", ", "), loss, terms


def _recalls(measured: Mapping[str, Any], language: str) -> list[str]:
    direction = measured["test"][language]["text_to_visual"]
    return [seeds.cell(direction[recall]) for recall in RECALLS]


if __name__ == "__main__":
    main()
