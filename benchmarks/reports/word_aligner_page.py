"""Fill the page of the word aligner from what was measured.

python -m benchmarks.reports.word_aligner_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import RESULTS

PAGE = Path(__file__).parents[2] / "docs" / "word-aligner.md"
NAME = "word_aligner.json"
LEAST_FOUND, MOST_SECONDS = 0.95, 60
"""Of eflomal's links for frequent words' pairs, and for 29,000 pairs of sentences."""
READINGS = {"both_frequent": "both words", "english_frequent": "the English word", "all": "any"}
"""Which links are counted: those of which so much is among the 500 most frequent words."""
WHO = {
    "ours": "Polyglance",
    "fast_align": "Polyglance, `--fast-align`",
    "eflomal again": "eflomal once more",
}


def main() -> None:
    fill(json.loads((RESULTS / NAME).read_text(encoding="utf-8")))


def fill(figures: Mapping[str, Any], document: Path = PAGE) -> None:
    """Put fresh figures between the marks of a document."""
    found = {name: value for name, value in figures.items() if name.startswith("en-")}
    contents = {"found": table(found), "goals": goals(found["en-de"]), "how": how(figures)}
    pages.fill(document, contents)


def table(found: Mapping[str, Any]) -> str:
    """A row a pair of languages and aligner: links of eflomal's, intersected, found as well."""
    rows = []
    for languages, measured in found.items():
        for who, label in WHO.items():
            if who in measured:
                links = measured[who]["intersection"]
                shares = (links["of_eflomal_s_found"][reading] for reading in READINGS)
                rows.append(
                    [
                        languages,
                        label,
                        *(f"{share:.1%}" for share in shares),
                        f"{links['are_eflomal_s']:.1%}",
                        f"{measured['seconds'].get(who, measured['seconds']['eflomal']):.1f}",
                    ]
                )
    header = ["", "", *READINGS.values(), "are eflomal's", "seconds"]
    return pages.table(header, rows, text_columns=2)


def goals(found: Mapping[str, Any]) -> str:
    """What was set out for, with both readings of frequent."""
    shares = found["ours"]["intersection"]["of_eflomal_s_found"]
    seconds = found["seconds_for_29000_pairs"]
    told = ", ".join(
        f"{'yes' if shares[reading] >= LEAST_FOUND else 'no'} where {READINGS[reading]}"
        f" {'are' if reading == 'both_frequent' else 'is'} frequent ({shares[reading]:.2%})"
        for reading in ("both_frequent", "english_frequent")
    )
    return (
        f"- At least {LEAST_FOUND:.0%} of eflomal's intersected links of frequent words, English"
        f" and German: {told}.\n"
        f"- 29,000 pairs of sentences in less than {MOST_SECONDS} s on two cores:"
        f" {'yes' if seconds < MOST_SECONDS else 'no'} ({seconds:.1f} s)."
    )


def how(figures: Mapping[str, Any]) -> str:
    """When, where and on what this was measured."""
    pairs = figures["en-de"]["pairs"]
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}, on"
        f" {pairs:,} captions of Multi30K in English and German, and as many in the other"
        f" languages ([{NAME}](../benchmarks/results/{NAME}))."
    )


if __name__ == "__main__":
    main()
