"""Fill the table of translation checks.

    python -m benchmarks.reports.translation_checks_page

Reads results/translation_checks.json, fills docs/translate.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, read_results

PAGE = DOCS / "translate.md"


def main() -> None:
    fill(read_results("translation_checks"))


def fill(figures: Mapping[str, Any], document: Path = PAGE) -> None:
    """Fill the table of a document."""
    pages.fill(document, {"checks": table(figures)})


def table(figures: Mapping[str, Any]) -> str:
    """Format what the checks keep and drop, a row per language."""
    header = [
        "", "translations", "dropped", "left in English, found", "cut to a quarter, found",
        "right, kept by meaning", "of another caption, kept",
    ]  # fmt: skip
    shares = ("untranslated_found", "truncated_found", "same_meaning_kept", "mismatched_kept")
    rows = [
        [
            language,
            f"{measured['pairs']:,}",
            str(measured["dropped"]),
            *(f"{measured[name]:.1f} %" for name in shares),
        ]
        for language, measured in figures["languages"].items()
    ]
    return pages.table(header, rows)


if __name__ == "__main__":
    main()
