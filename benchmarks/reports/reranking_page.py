"""Fill the page of re-ranking: what M3P and UC2 add to the default model's search.

    python -m benchmarks.reports.reranking_page

Reads results/reranking_m3p.json and results/reranking_uc2.json, fills docs/results-reranking.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.reports.cross_encoder_tables import shared_machine_note
from benchmarks.reports.seeds import Line
from benchmarks.results_io import DOCS, RESULTS, read_results

PAGE = DOCS / "results-reranking.md"
PROTOCOLS = {
    "dual": "the default model alone",
    "dual_tta": "its top 50, with test-time augmentation",
    "reranked": "its top 50, re-ranked with {system}",
    "all_pairs": "{system} alone, every pair scored",
}
"""Evaluation protocols, and what the table calls them."""
MIN_GAIN = {"M3P": 2.0, "UC2": 3.0}
"""The goal: points of mR gained by re-ranking."""
MIN_RECALL = {"M3P": 40.0}
"""The goal: mR with every pair scored."""

SYSTEMS = ("M3P", "UC2")

Figures = Mapping[str, Mapping[str, Any]]
"""The results of each system that was measured."""


def main() -> None:
    fill(read_all(RESULTS))


def results_name(system: str) -> str:
    """Return the name of a system's file of results."""
    return f"reranking_{system.lower()}"


def read_all(folder: Path) -> Figures:
    """Read the results of all systems that were measured."""
    return {
        system: read_results(results_name(system), folder)
        for system in SYSTEMS
        if (folder / f"{results_name(system)}.json").is_file()
    }


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Fill the table and the goals of a document."""
    how = pages.bullets(_how(system, of_system) for system, of_system in figures.items())
    lines = goals(figures)
    (judged,) = seeds.write_lines(lines)
    contents = {
        "table": table(figures),
        "goals": pages.bullets(judged),
        "compared": seeds.how_compared(lines),
        "how": how,
    }
    pages.fill(document, contents)


def table(figures: Figures) -> str:
    """Format mR by language, a row per system and protocol."""
    rows: dict[str, list[str]] = {}
    languages: list[str] = []
    for system, of_system in figures.items():
        for protocol, label in PROTOCOLS.items():
            if protocol in of_system["test"]:  # the dual encoder's rows are the same for all
                spreads = of_system["test"][protocol]
                languages = list(spreads)
                rows.setdefault(
                    label.format(system=system), [seeds.cell(spreads[code]) for code in languages]
                )
    if not rows:
        return pages.NOT_MEASURED
    return pages.table(["", *languages], [[label, *cells] for label, cells in rows.items()])


def goals(figures: Figures) -> list[Line]:
    """Say which goals were reached, and how much of a gain is due to augmentation alone."""
    lines: list[Line] = []
    for system, of_system in figures.items():
        means = {name: spreads["average"]["values"] for name, spreads in of_system["test"].items()}
        if system in MIN_RECALL and "all_pairs" in means:
            above = seeds.gain(means["all_pairs"], MIN_RECALL[system])
            recall = of_system["test"]["all_pairs"]["average"]["mean"]
            lines.append(Line(partial(_recall_goal, system, recall), (above,)))
        goal = MIN_GAIN[system]
        above = seeds.gain(means["reranked"], [value + goal for value in means["dual"]])
        pairs = [("reranked", "dual"), ("dual_tta", "dual"), ("reranked", "dual_tta")]
        gains = [
            _gain(of_system, system, *pair) for pair in pairs[: 3 if "dual_tta" in means else 1]
        ]
        lines.append(Line(partial(_gain_goal, system), (above, *gains)))
    return lines


def _gain(figures: Mapping[str, Any], system: str, better: str, worse: str) -> seeds.Gain:
    """Return how far one protocol is above another, over queries where these are compared."""
    rows = [PROTOCOLS[protocol].format(system=system) for protocol in (better, worse)]
    found = seeds.stored(figures, rows[0], rows[1])
    if found is not None:
        return found
    values = [figures["test"][protocol]["average"]["values"] for protocol in (better, worse)]
    return seeds.gain(values[0], values[1])


def _recall_goal(system: str, recall: float, above: seeds.Gain) -> str:
    return (
        f"{system}, every pair scored, reaches at least {MIN_RECALL[system]:.0f} mR:"
        f" {seeds.verdict(above)} ({recall:.1f}; above the goal by {seeds.signed(above)})."
    )


def _gain_goal(
    system: str,
    above: seeds.Gain,
    gain: seeds.Gain,
    augmented: seeds.Gain | None = None,
    reranked: seeds.Gain | None = None,
) -> str:
    line = (
        f"The default model's top 50, re-ranked with {system}, are at least"
        f" {MIN_GAIN[system]:.0f} points above it alone: {seeds.verdict(above)}"
        f" ({seeds.signed(gain)}"
    )
    if augmented is not None and reranked is not None:
        line += (
            f"; {seeds.signed(augmented)} by test-time augmentation;"
            f" {seeds.signed(reranked)} by {system}"
        )
    return f"{line})."


def _how(system: str, figures: Mapping[str, Any]) -> str:
    """Say when, where and how a system was measured."""
    stages = ", ".join(
        f"{steps:,} steps of {stage.replace('_', '-')}" for stage, steps in figures["steps"].items()
    )
    minutes = sum(figures["seconds"].values()) / 60
    weights = ", ".join(f"{weight:g}" for weight in figures["dual_weight"])
    changed = ", ".join(f"`{change}`" for change in figures["common_changes"])
    used = ", ".join(map(str, figures["seeds"]))
    return (
        f"{system}: measured {figures['date']} at {figures['commit']} on {figures['hardware']},"
        f" {'seed' if len(figures['seeds']) == 1 else 'seeds'} {used};"
        f" {stages} in {minutes:.1f} minutes{shared_machine_note(figures)}."
        f" A pair's score is {system}'s own plus {weights} times (`dual_weight`) the default"
        " model's augmented cosine in standard deviations of all pairs."
        + (f" Changes to the recipe: {changed}." if changed else "")
    )


if __name__ == "__main__":
    main()
