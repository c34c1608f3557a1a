"""Fill the page of the word aligner.

    python -m benchmarks.reports.word_aligner_page

Reads results/word_aligner.json, fills docs/word-aligner.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, read_results

PAGE = DOCS / "word-aligner.md"
NAME = "word_aligner"
MIN_RECALL, MAX_SECONDS = 0.95, 60
"""The goals: recall of eflomal's links between frequent words, and time for 29,000 pairs."""
FREQUENCIES = {"both_frequent": "both words", "english_frequent": "the English word", "all": "any"}
"""Which links are counted: those with so many words among the 500 most frequent."""
ALIGNERS = {
    "polyglance": "Polyglance",
    "fast_align": "Polyglance, `--fast-align`",
    "eflomal_rerun": "eflomal, another run",
}


def main() -> None:
    fill(read_results(NAME))


def fill(figures: Mapping[str, Any], document: Path = PAGE) -> None:
    """Fill the table and the goals of a document."""
    by_pair = {name: value for name, value in figures.items() if name.startswith("en-")}
    contents = {"table": table(by_pair), "goals": goals(by_pair["en-de"]), "how": how(figures)}
    pages.fill(document, contents)


def table(by_pair: Mapping[str, Any]) -> str:
    """Format recall and precision against eflomal, a row per language pair and aligner."""
    rows = []
    for languages, measured in by_pair.items():
        for aligner, label in ALIGNERS.items():
            if aligner in measured:
                links = measured[aligner]["intersection"]
                recalls = (links["recall_against_eflomal"][name] for name in FREQUENCIES)
                seconds = measured["seconds"].get(aligner, measured["seconds"]["eflomal"])
                rows.append(
                    [
                        languages,
                        label,
                        *(f"{recall:.1%}" for recall in recalls),
                        f"{links['precision_against_eflomal']:.1%}",
                        f"{seconds:.1f}",
                    ]
                )
    header = ["", "", *FREQUENCIES.values(), "precision", "seconds"]
    return pages.table(header, rows, text_columns=2)


def goals(measured: Mapping[str, Any]) -> str:
    """Say which goals were reached, for both meanings of a frequent link."""
    recalls = measured["polyglance"]["intersection"]["recall_against_eflomal"]
    seconds = measured["seconds_for_29000_pairs"]
    verdicts = ", ".join(
        f"{'yes' if recalls[name] >= MIN_RECALL else 'no'} where {FREQUENCIES[name]}"
        f" {'are' if name == 'both_frequent' else 'is'} frequent ({recalls[name]:.2%})"
        for name in ("both_frequent", "english_frequent")
    )
    return (
        f"- At least {MIN_RECALL:.0%} of eflomal's intersected links of frequent words, English"
        f" and German: {verdicts}.\n"
        f"- 29,000 sentence pairs in less than {MAX_SECONDS} s on two cores:"
        f" {'yes' if seconds < MAX_SECONDS else 'no'} ({seconds:.1f} s)."
    )


def how(figures: Mapping[str, Any]) -> str:
    """Say when, where and on what this was measured."""
    pairs = figures["en-de"]["pairs"]
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}, on"
        f" {pairs:,} captions of Multi30K in English and German, and as many in the other"
        f" languages ([{NAME}.json](../benchmarks/results/{NAME}.json))."
    )


if __name__ == "__main__":
    main()
