"""Fill the page of UC2's results from what was measured: the paper's Tables 1, 3 and 4.

python -m benchmarks.reports.uc2_page
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reports import cross_encoder_tables, language_plot, m3p_page, pages, seeds
from benchmarks.reports.cross_encoder_tables import (
    ALL,
    EACH,
    ENGLISH,
    FINE_TUNED,
    TRANSLATED,
    UNKNOWN,
    Figures,
    Measured,
    Setting,
    Table,
)
from benchmarks.results_io import RESULTS

PAGE = Path(__file__).parents[2] / "docs" / "results-uc2.md"
PLOT = "uc2.svg"

FULL, NO_VTLM, NO_MRTM, NEITHER = "UC2", "no VTLM", "no MRTM", "no VTLM, no MRTM"
BY_ENGLISH = "English pivot"
JUDGED = f"{FULL} > {ALL}"

PAPER: dict[Setting, tuple[float, ...]] = {
    (FULL, ENGLISH): (87.2, 74.9, 74.0, 67.9),
    (FULL, TRANSLATED): (87.7, 81.2, 81.9, 80.2),  # of UNITER
    (FULL, EACH): (87.2, 83.8, 77.6, 74.2),
    (FULL, ALL): (88.2, 84.5, 83.9, 81.2),
    (NO_VTLM, ALL): (87.5, 83.6, 82.4, 79.6),
    (NO_MRTM, ALL): (87.6, 83.7, 82.0, 80.0),
    (NEITHER, ALL): (86.8, 82.9, 81.3, 79.3),
    (BY_ENGLISH, ALL): (86.2, 81.9, 80.7, 77.4),
}
"""mR of the paper on Multi30K: en, de, fr, cs."""

_SETTINGS = (ENGLISH, TRANSLATED, EACH, ALL)
SHARED = (ENGLISH, EACH, ALL)
"""What M3P is fine-tuned on as well."""
TABLES = {
    1: Table(("UC2, fine-tuned",), {(FINE_TUNED[on],): (FULL, on) for on in _SETTINGS}),
    3: Table(
        ("pre-training",),
        {
            ("all four objectives",): (FULL, ALL),
            ("without VTLM",): (NO_VTLM, ALL),
            ("without MRTM",): (NO_MRTM, ALL),
            ("without both",): (NEITHER, ALL),
        },
    ),
    4: Table(
        ("pivot",),
        {("pictures",): (NO_VTLM, ALL), ("English",): (BY_ENGLISH, ALL)},
    ),
}


def main() -> None:
    figures = json.loads((RESULTS / "uc2_flickr8k.json").read_text(encoding="utf-8"))
    fill(figures, m3p=of_m3p(RESULTS))


def of_m3p(folder: Path) -> Figures | None:
    """What was measured of M3P, if it was."""
    path = folder / "m3p_flickr8k.json"
    found: Figures | None = json.loads(path.read_text("utf-8")) if path.is_file() else None
    return found


def fill(figures: Figures, document: Path = PAGE, *, m3p: Figures | None = None) -> None:
    """Put fresh tables between the marks of a document, and a plot beside it."""
    figures = cross_encoder_tables.of_whole_seeds(figures)
    m3p = None if m3p is None else cross_encoder_tables.of_whole_seeds(m3p)
    contents = {f"table {number}": table(figures, number) for number in TABLES}
    contents |= {
        "plot": _plotted(figures, m3p, document.parent / "images" / PLOT),
        "m3p": beside_m3p(figures, m3p),
        "adaptation": adaptation(figures),
        "order": cross_encoder_tables.listed(claims(figures)),
        "how": cross_encoder_tables.how(figures),
        "speed": cross_encoder_tables.speed(RESULTS / "uc2_step.json"),
    }
    pages.fill(document, contents)


def table(figures: Figures, number: int) -> str:
    """One of the paper's tables with figures of ours."""
    return cross_encoder_tables.table(figures, TABLES[number], PAPER)


def claims(figures: Figures) -> list[str]:
    """Each finding of the paper in a sentence, with whether the figures here agree."""
    compared = [
        ("Translate-test is above asking in the language itself, both fine-tuned on English",
         (FULL, TRANSLATED), (FULL, ENGLISH)),
        ("Fine-tuning on each language is above on English", (FULL, EACH), (FULL, ENGLISH)),
        ("Fine-tuning on all languages is above on each", (FULL, ALL), (FULL, EACH)),
        ("Fine-tuning on all languages is above translate-test", (FULL, ALL), (FULL, TRANSLATED)),
        ("VTLM helps", (FULL, ALL), (NO_VTLM, ALL)),
        ("MRTM helps", (FULL, ALL), (NO_MRTM, ALL)),
        ("Both help", (FULL, ALL), (NEITHER, ALL)),
        ("Pivoting on pictures is above pivoting on English", (NO_VTLM, ALL), (BY_ENGLISH, ALL)),
    ]  # fmt: skip
    lines = cross_encoder_tables.helps(figures, PAPER, compared)
    english = {
        "VTLM": ((FULL, ALL), (NO_VTLM, ALL)),
        "MRTM": ((FULL, ALL), (NO_MRTM, ALL)),
        "Pivoting on pictures": ((NO_VTLM, ALL), (BY_ENGLISH, ALL)),
    }
    for text, (better, worse) in english.items():
        gain = cross_encoder_tables.gain(figures, better, worse, [ENGLISH])
        if gain is not None:
            paper = cross_encoder_tables.paper_gain(PAPER, better, worse, english=True)
            lines.append(
                f"{text} to English itself (the paper: {paper:+.1f}): {cross_encoder_tables.way(gain)}."
            )
    return lines


def beside_m3p(figures: Figures, m3p: Figures | None) -> str:
    """Both systems in the settings that they share, and which is above."""
    if m3p is None:
        return "M3P was not measured yet."
    for what in ("test_on", "languages"):
        if figures[what] != m3p[what]:
            return (
                f"There is nothing to compare: `{what}` was {m3p[what]} for M3P and"
                f" {figures[what]} for UC2."
            )
    figures, m3p = (
        cross_encoder_tables.of_whole_seeds(figures, m3p),
        cross_encoder_tables.of_whole_seeds(m3p, figures),
    )
    rows = [
        [FINE_TUNED[on], name, *cross_encoder_tables.recall_cells(found, (name, on))]
        for on in SHARED
        for name, found in ((m3p_page.FULL, m3p), (FULL, figures))
    ]
    header = ["fine-tuned", "", *figures["languages"], "others", "average"]
    compared = cross_encoder_tables.listed([*_budget(figures, m3p), *_above_m3p(figures, m3p)])
    return f"{pages.table(header, rows, text_columns=2)}\n\n{compared}"


def _budget(figures: Figures, m3p: Figures) -> list[str]:
    """What each took, since steps of one are not steps of the other."""
    lines = []
    for what, ours, theirs in (
        ("Pre-training", FULL, m3p_page.FULL),
        ("Fine-tuning on all languages", JUDGED, m3p_page.JUDGED),
    ):
        both = m3p["runs"].get(theirs), figures["runs"].get(ours)
        if None not in both:
            took = (f"{_steps(run)}{run['seconds'] / 60:.1f} minutes" for run in both if run)
            lines.append(
                f"{what}: {' for M3P, '.join(took)} for UC2{cross_encoder_tables.company(figures)}."
            )
    return lines


def _steps(run: Any) -> str:
    """In all, and of each stage where there are several."""
    if "steps" not in run:
        return ""
    stages = run.get("stages", {})
    parts = ", ".join(f"{steps:,} of {stage.replace('_', '-')}" for stage, steps in stages.items())
    return f"{run['steps']:,} steps{f' ({parts})' if len(stages) > 1 else ''} in "


def _above_m3p(figures: Figures, m3p: Figures) -> list[str]:
    """Setting by setting and in all: whether UC2 is at or above M3P on average."""
    lines, means = [], []
    for on in SHARED:
        gain = cross_encoder_tables.gain_over(
            Measured.of(figures, (FULL, on)),
            Measured.of(m3p, (m3p_page.FULL, on)),
            figures["languages"],
        )
        if gain is not None:
            lines.append(
                f"Fine-tuned {FINE_TUNED[on]}, UC2 is {standing(gain)} M3P on average"
                f" ({seeds.signed(gain)}; the paper, in its four languages:"
                f" {_paper_above_m3p(on):+.1f})."
            )
            means.append(gain[0])
    if len(means) == len(SHARED):
        mean = statistics.mean(means)
        lines.append(
            f"Over these settings, UC2 is {standing((mean, None))} M3P on average ({mean:+.1f})."
        )
    return lines


def standing(gain: seeds.Gain) -> str:
    """Where one is that is so far above the other."""
    mean, deviation = gain
    if mean >= 0:
        return "at or above"
    within = deviation is not None and -mean <= deviation
    return "below (within the deviation of seeds)" if within else "below"


def _paper_above_m3p(on: str) -> float:
    ours, theirs = PAPER[FULL, on], m3p_page.PAPER[m3p_page.FULL, on]
    return statistics.mean(ours) - statistics.mean(theirs)


def adaptation(figures: Figures) -> str:
    """Where the word of a region's own label comes, before early adaptation and after."""
    run = figures["runs"].get(FULL)
    if run is None or "adaptation" not in run:
        return UNKNOWN
    found = run["adaptation"]
    rows = [
        [language, when, *(seeds.cell(ranks[what]) for what in ("median", "mean", "first"))]
        for language in found["before"]
        for when, ranks in (
            ("before", found["before"][language]),
            ("after", found["after"][language]),
        )
    ]
    header = ["words", "", "median rank", "mean rank", "first, %"]
    named = ", ".join(f"{code} {share:.0%}" for code, share in found["named"].items())
    names = f"Labels that have a name of their own, which MRTM asks for: {named}."
    return f"{pages.table(header, rows, text_columns=2)}\n\n{names}"


def _plotted(figures: Figures, m3p: Figures | None, path: Path) -> str:
    """Draw settings by language; returns what shows the picture."""
    comparable = m3p is not None and m3p["test_on"] == figures["test_on"]
    systems: list[tuple[str, Figures, Sequence[str]]] = [(FULL, figures, _SETTINGS)]
    if m3p is not None and comparable:
        systems.append((m3p_page.FULL, m3p, SHARED))
    series = []
    for system, found, settings in systems:
        for on in settings:
            values = _by_language(found, (system, on), figures["languages"])
            if values:
                name = f"{system} {FINE_TUNED[on]}"
                if "average" in values:
                    name += f" {values['average']:.1f}"
                series.append(language_plot.Dots(name, on, values, hollow=system != FULL))
    if not series:
        return UNKNOWN
    columns = [*figures["languages"], "average"]
    path.parent.mkdir(parents=True, exist_ok=True)
    up = f"mR, %; the first {figures['test_on']} test pictures"
    path.write_text(language_plot.plot(columns, series, up=up), encoding="utf-8")
    return f"![mR by language and setting](images/{path.name})"


def _by_language(figures: Figures, setting: Setting, languages: Sequence[str]) -> dict[str, float]:
    measured = Measured.of(figures, setting)
    columns = {**{code: [code] for code in languages}, "average": list(languages)}
    means = {name: measured.mean(codes) for name, codes in columns.items()}
    return {name: statistics.mean(found.values()) for name, found in means.items() if found}


if __name__ == "__main__":
    main()
