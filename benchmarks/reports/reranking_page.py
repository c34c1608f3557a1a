"""Fill the page of what M3P and UC2 add to the default model's search.

python -m benchmarks.reports.reranking_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.reports.cross_encoder_tables import UNKNOWN, company, listed
from benchmarks.results_io import RESULTS

PAGE = Path(__file__).parents[2] / "docs" / "results-reranking.md"
WAYS = {
    "dual": "the default model alone",
    "closer": "its best 50, looked at more closely",
    "reranked": "its best 50, read by {system} as well",
    "all_pairs": "{system} alone, every pair read",
}
"""Ways of measuring, and what they are called."""
LEAST_GAIN = {"M3P": 2.0, "UC2": 3.0}
"""Points to be gained by reading the default model's best again."""
LEAST_RECALL = {"M3P": 40.0}
"""mR to be reached by reading every pair."""

SYSTEMS = ("M3P", "UC2")

Figures = Mapping[str, Mapping[str, Any]]
"""Of each system that was measured."""


def main() -> None:
    fill(read(RESULTS))


def results_of(system: str) -> str:
    """What the file of results of a system is called."""
    return f"reranking_{system.lower()}"


def read(folder: Path) -> Figures:
    """What was measured so far."""
    paths = {system: folder / f"{results_of(system)}.json" for system in SYSTEMS}
    return {
        system: json.loads(path.read_text(encoding="utf-8"))
        for system, path in paths.items()
        if path.is_file()
    }


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Put fresh tables between the marks of a document."""
    how = listed(_how(system, found) for system, found in figures.items())
    pages.fill(document, {"table": table(figures), "goals": listed(goals(figures)), "how": how})


def table(figures: Figures) -> str:
    """A row a way of measuring: mR by language, and over all."""
    rows: dict[str, list[str]] = {}
    languages: list[str] = []
    for system, found in figures.items():
        for way, label in WAYS.items():
            if way in found["test"]:  # what the dual encoder finds is the same for all systems
                spreads = found["test"][way]
                languages = list(spreads)
                rows.setdefault(
                    label.format(system=system), [seeds.cell(spreads[code]) for code in languages]
                )
    if not rows:
        return UNKNOWN
    return pages.table(["", *languages], [[label, *cells] for label, cells in rows.items()])


def goals(figures: Figures) -> list[str]:
    """What was set out to be reached, and how much of it is due to the closer look."""
    lines = []
    for system, found in figures.items():
        means = {way: spreads["average"]["seeds"] for way, spreads in found["test"].items()}
        if system in LEAST_RECALL and "all_pairs" in means:
            least, reached = LEAST_RECALL[system], found["test"]["all_pairs"]["average"]["mean"]
            lines.append(
                f"{system}, every pair read, reaches at least {least:.0f} mR:"
                f" {_whether(reached >= least, found)} ({reached:.1f})."
            )
        gain, least = seeds.gain(means["reranked"], means["dual"]), LEAST_GAIN[system]
        line = (
            f"The default model's best 50, sorted again with {system}, are at least {least:.0f}"
            " points above it alone:"
            f" {_whether(gain[0] >= least, found)} ({seeds.signed(gain)}"
        )
        if "closer" in means:
            closer = seeds.gain(means["closer"], means["dual"])
            read = seeds.gain(means["reranked"], means["closer"])
            line += (
                f": {seeds.signed(closer)} by looking more closely, {seeds.signed(read)} by reading"
            )
        lines.append(f"{line}).")
    return lines


def _whether(reached: bool, found: Mapping[str, Any]) -> str:
    """One seed may be chance."""
    return ("yes" if reached else "no") + (", by one seed" if len(found["seeds"]) == 1 else "")


def _how(system: str, found: Mapping[str, Any]) -> str:
    """When, where and how a system was measured."""
    stages = ", ".join(
        f"{steps:,} steps of {stage.replace('_', '-')}" for stage, steps in found["steps"].items()
    )
    minutes = sum(found["seconds"].values()) / 60
    trust = ", ".join(f"{trust:g}" for trust in found["trust"])
    changed = ", ".join(f"`{change}`" for change in found["changed_everywhere"])
    used = ", ".join(map(str, found["seeds"]))
    return (
        f"{system}: measured {found['date']} at {found['commit']} on {found['hardware']},"
        f" {'seed' if len(found['seeds']) == 1 else 'seeds'} {used};"
        f" {stages} in {minutes:.1f} minutes{company(found)}."
        f" To the score of a pair is added {trust} times the default model's cosine"
        " in the closer look, in standard deviations of all."
        + (f" Changed in the recipe: {changed}." if changed else "")
    )


if __name__ == "__main__":
    main()
