"""Fill the tables of the caption translator.

    python -m benchmarks.reports.caption_translator_page

Reads results/caption_translator.json, fills docs/translate.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, read_results

PAGE = DOCS / "translate.md"
_CAPTIONS = ("multi30k", "coco")
"""Corpora of captions; the others are of other sentences."""


def main() -> None:
    fill(read_results("caption_translator"))


def fill(figures: Mapping[str, Any], document: Path = PAGE) -> None:
    """Fill the table of a document."""
    pages.fill(document, {"translator": table(figures)})


def table(figures: Mapping[str, Any]) -> str:
    """Format BLEU and chrF by language, and what the checks keep of translated captions."""
    header = [
        "", "captions: BLEU", "chrF", "Tatoeba: BLEU", "chrF", "there and back: chrF",
        "captions translated", "dropped by checks",
    ]  # fmt: skip
    test, rows = figures["test"], []
    order = sorted(figures["round_trip"], key=lambda code: (not _has_captions(test, code), code))
    for code in order:
        captions = next(
            (test[name][code] for name in _CAPTIONS if code in test.get(name, {})), None
        )
        counts = figures.get("translated", {}).get(code)
        dropped = sum(n for key, n in (counts or {}).items() if key.startswith("dropped"))
        rows.append(
            [
                code,
                *_scores(captions),
                *_scores(test["tatoeba"].get(code)),
                f"{figures['round_trip'][code]:.1f}" + _refused(figures, code),
                f"{counts['captions']:,}" if counts else "",
                f"{dropped / counts['texts']:.2%}" if counts else "",
            ]
        )
    measured = (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {figures['steps']:,} steps in {figures['seconds'] / 60:.1f} minutes,"
        f" {figures['parameters'] / 1e6:.1f} million parameters."
    )
    return f"{pages.table(header, rows)}\n\n{measured}"


def _has_captions(test: Mapping[str, Any], code: str) -> bool:
    return any(code in test.get(name, {}) for name in _CAPTIONS)


def _scores(scores: Mapping[str, Any] | None) -> tuple[str, str]:
    return ("", "") if scores is None else (f"{scores['bleu']:.1f}", f"{scores['chrf']:.1f}")


def _refused(figures: Mapping[str, Any], code: str) -> str:
    return " (refused)" if code in figures["refused"] else ""


if __name__ == "__main__":
    main()
