"""Fill the page of re-ranking: what M3P and UC2 add to the default model's search.

    python -m benchmarks.reports.reranking_page

Reads results/reranking_m3p.json and results/reranking_uc2.json, fills docs/results-reranking.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.reports.cross_encoder_tables import shared_machine_note
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
    goals_list = pages.bullets(goals(figures))
    pages.fill(document, {"table": table(figures), "goals": goals_list, "how": how})


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


def goals(figures: Figures) -> list[str]:
    """Say which goals were reached, and how much of a gain is due to augmentation alone."""
    lines = []
    for system, of_system in figures.items():
        means = {name: spreads["average"]["values"] for name, spreads in of_system["test"].items()}
        if system in MIN_RECALL and "all_pairs" in means:
            goal = MIN_RECALL[system]
            recall = of_system["test"]["all_pairs"]["average"]["mean"]
            above = seeds.gain(means["all_pairs"], goal)
            lines.append(
                f"{system}, every pair scored, reaches at least {goal:.0f} mR:"
                f" {seeds.verdict(above)} ({recall:.1f}; above the goal by"
                f" {seeds.signed(above)})."
            )
        gain, goal = seeds.gain(means["reranked"], means["dual"]), MIN_GAIN[system]
        above = seeds.gain(means["reranked"], [value + goal for value in means["dual"]])
        line = (
            f"The default model's top 50, re-ranked with {system}, are at least {goal:.0f}"
            f" points above it alone: {seeds.verdict(above)} ({seeds.signed(gain)}"
        )
        if "dual_tta" in means:
            augmented = seeds.gain(means["dual_tta"], means["dual"])
            reranked = seeds.gain(means["reranked"], means["dual_tta"])
            line += (
                f"; {seeds.signed(augmented)} by test-time augmentation;"
                f" {seeds.signed(reranked)} by {system}"
            )
        lines.append(f"{line}).")
    return lines


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
