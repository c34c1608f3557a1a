"""Fill the page of UC2's results: the paper's Tables 1, 3 and 4, and UC2 beside M3P.

    python -m benchmarks.reports.uc2_page

Reads results/uc2_flickr8k.json, m3p_flickr8k.json and uc2_step.json, fills docs/results-uc2.md
and draws docs/images/uc2.svg.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reports import cross_encoder_tables, m3p_page, pages, seeds
from benchmarks.reports.cross_encoder_tables import (
    ALL,
    EACH,
    ENGLISH,
    FINE_TUNED,
    TRANSLATE_TEST,
    Figures,
    Recalls,
    Setting,
    Table,
)
from benchmarks.reports.pages import NOT_MEASURED
from benchmarks.reports.seeds import Line
from benchmarks.results_io import DOCS, RESULTS, read_results
from polyglance.reproduce.plots import language_plot

PAGE = DOCS / "results-uc2.md"
PLOT = "uc2.svg"

FULL, NO_VTLM, NO_MRTM, NEITHER = "UC2", "no VTLM", "no MRTM", "no VTLM, no MRTM"
ENGLISH_PIVOT = "English pivot"
MAIN_RUN = f"{FULL} > {ALL}"

PAPER: dict[Setting, tuple[float, ...]] = {
    (FULL, ENGLISH): (87.2, 74.9, 74.0, 67.9),
    (FULL, TRANSLATE_TEST): (87.7, 81.2, 81.9, 80.2),  # of UNITER
    (FULL, EACH): (87.2, 83.8, 77.6, 74.2),
    (FULL, ALL): (88.2, 84.5, 83.9, 81.2),
    (NO_VTLM, ALL): (87.5, 83.6, 82.4, 79.6),
    (NO_MRTM, ALL): (87.6, 83.7, 82.0, 80.0),
    (NEITHER, ALL): (86.8, 82.9, 81.3, 79.3),
    (ENGLISH_PIVOT, ALL): (86.2, 81.9, 80.7, 77.4),
}
"""mR of the paper on Multi30K: en, de, fr, cs."""

_SETTINGS = (ENGLISH, TRANSLATE_TEST, EACH, ALL)
SHARED = (ENGLISH, EACH, ALL)
"""What M3P is fine-tuned on too."""
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
        {("pictures",): (NO_VTLM, ALL), ("English",): (ENGLISH_PIVOT, ALL)},
    ),
}


def main() -> None:
    fill(read_results("uc2_flickr8k"), m3p=read_m3p(RESULTS))


def read_m3p(folder: Path) -> Figures | None:
    """Read the results of M3P, if there are any."""
    return (
        read_results("m3p_flickr8k", folder) if (folder / "m3p_flickr8k.json").is_file() else None
    )


def fill(figures: Figures, document: Path = PAGE, *, m3p: Figures | None = None) -> None:
    """Fill the tables and claims of a document, and draw the plot beside it."""
    figures = cross_encoder_tables.only_complete_seeds(figures)
    m3p = None if m3p is None else cross_encoder_tables.only_complete_seeds(m3p)
    contents = {f"table {number}": table(figures, number) for number in TABLES}
    table_m3p, lines_m3p = beside_m3p(figures, m3p)
    lines = claims(figures)
    order, compared = seeds.write_lines(lines, lines_m3p)
    contents |= {
        "plot": _plot(figures, m3p, document.parent / "images" / PLOT),
        "m3p": "\n\n".join([table_m3p, *([pages.bullets(compared)] if compared else [])]),
        "early adaptation": early_adaptation(figures),
        "order": pages.bullets(order),
        "compared": seeds.how_compared(lines, lines_m3p),
        "how": cross_encoder_tables.how(figures),
        "speed": cross_encoder_tables.step_speed(RESULTS / "uc2_step.json"),
    }
    pages.fill(document, contents)


def table(figures: Figures, number: int) -> str:
    """Format one of the paper's tables with our figures."""
    return cross_encoder_tables.table(figures, TABLES[number], PAPER)


def claims(figures: Figures) -> list[Line]:
    """State each finding of the paper, and whether the figures here agree."""
    compared = [
        ("Translate-test is above testing in the language itself, both fine-tuned on English",
         (FULL, TRANSLATE_TEST), (FULL, ENGLISH)),
        ("Fine-tuning on each language is above on English", (FULL, EACH), (FULL, ENGLISH)),
        ("Fine-tuning on all languages is above on each", (FULL, ALL), (FULL, EACH)),
        ("Fine-tuning on all languages is above translate-test", (FULL, ALL),
         (FULL, TRANSLATE_TEST)),
        ("VTLM helps", (FULL, ALL), (NO_VTLM, ALL)),
        ("MRTM helps", (FULL, ALL), (NO_MRTM, ALL)),
        ("Both help", (FULL, ALL), (NEITHER, ALL)),
        ("Pivoting on pictures is above pivoting on English", (NO_VTLM, ALL), (ENGLISH_PIVOT, ALL)),
    ]  # fmt: skip
    in_english = {
        "VTLM": ((FULL, ALL), (NO_VTLM, ALL)),
        "MRTM": ((FULL, ALL), (NO_MRTM, ALL)),
        "Pivoting on pictures": ((NO_VTLM, ALL), (ENGLISH_PIVOT, ALL)),
    }
    return [
        *cross_encoder_tables.comparisons(figures, PAPER, compared),
        *cross_encoder_tables.english_comparisons(figures, PAPER, in_english),
    ]


def beside_m3p(figures: Figures, m3p: Figures | None) -> tuple[str, list[Line]]:
    """Compare both systems in the settings that they share: a table, and what it says."""
    if m3p is None:
        return "M3P was not measured yet.", []
    for key in ("test_images", "languages"):
        if figures[key] != m3p[key]:
            return (
                f"The two cannot be compared: `{key}` was {m3p[key]} for M3P and {figures[key]}"
                " for UC2.",
                [],
            )
    figures, m3p = (
        cross_encoder_tables.only_complete_seeds(figures, m3p),
        cross_encoder_tables.only_complete_seeds(m3p, figures),
    )
    rows = [
        [FINE_TUNED[on], name, *cross_encoder_tables.recall_cells(of_system, (name, on))]
        for on in SHARED
        for name, of_system in ((m3p_page.FULL, m3p), (FULL, figures))
    ]
    header = ["fine-tuned", "", *figures["languages"], "others", "average"]
    budget = [seeds.plain(line) for line in _training_budget(figures, m3p)]
    table = pages.table(header, rows, text_columns=2)
    return table, [*budget, *_differences(figures, m3p)]


def _training_budget(figures: Figures, m3p: Figures) -> list[str]:
    """Say what training took, since a step of one system is not a step of the other."""
    lines = []
    for stage, ours, theirs in (
        ("Pre-training", FULL, m3p_page.FULL),
        ("Fine-tuning on all languages", MAIN_RUN, m3p_page.MAIN_RUN),
    ):
        both = m3p["runs"].get(theirs), figures["runs"].get(ours)
        if None not in both:
            texts = (f"{_steps(run)}{run['seconds'] / 60:.1f} minutes" for run in both if run)
            note = cross_encoder_tables.shared_machine_note(figures)
            lines.append(f"{stage}: {' for M3P, '.join(texts)} for UC2{note}.")
    return lines


def _steps(run: Any) -> str:
    """Format the number of steps, and that of each stage where there are several."""
    if "steps" not in run:
        return ""
    stages = run.get("stages", {})
    parts = ", ".join(f"{steps:,} of {stage.replace('_', '-')}" for stage, steps in stages.items())
    return f"{run['steps']:,} steps{f' ({parts})' if len(stages) > 1 else ''} in "


def _differences(figures: Figures, m3p: Figures) -> list[Line]:
    """Say, by setting and over all, whether UC2 is above M3P on average."""
    lines: list[Line] = []
    settings = []
    for on in SHARED:
        by_seed = cross_encoder_tables.gains_by_seed(
            Recalls.of(figures, (FULL, on)),
            Recalls.of(m3p, (m3p_page.FULL, on)),
            figures["languages"],
        )
        if by_seed:
            lines.append(_above_m3p(on, seeds.gain(list(by_seed.values()))))
            settings.append(by_seed)
    if len(settings) == len(SHARED):
        common = [seed for seed in settings[0] if all(seed in each for each in settings)]
        gain = seeds.gain([statistics.mean(each[seed] for each in settings) for seed in common])
        text = "Over these settings, UC2 is above M3P on average"
        lines.append(
            Line(lambda found: f"{text}: {seeds.verdict(found)} ({seeds.signed(found)}).", (gain,))
        )
    return lines


def _above_m3p(on: str, gain: seeds.Gain) -> Line:
    return Line(
        lambda found: (
            f"Fine-tuned {FINE_TUNED[on]}, UC2 is above M3P on average:"
            f" {seeds.verdict(found)} ({seeds.signed(found)}; the paper, in its four languages:"
            f" {_paper_difference(on):+.1f})."
        ),
        (gain,),
    )


def _paper_difference(on: str) -> float:
    ours, theirs = PAPER[FULL, on], m3p_page.PAPER[m3p_page.FULL, on]
    return statistics.mean(ours) - statistics.mean(theirs)


def early_adaptation(figures: Figures) -> str:
    """Format the rank of a region's own label among all labels, before and after adaptation."""
    run = figures["runs"].get(FULL)
    if run is None or "early_adaptation" not in run:
        return NOT_MEASURED
    adaptation = run["early_adaptation"]
    rows = [
        [language, when, *(seeds.cell(ranks[name]) for name in ("median", "mean", "first"))]
        for language in adaptation["before"]
        for when, ranks in (
            ("before", adaptation["before"][language]),
            ("after", adaptation["after"][language]),
        )
    ]
    header = ["words", "", "median rank", "mean rank", "first, %"]
    named = ", ".join(f"{code} {share:.0%}" for code, share in adaptation["named"].items())
    note = f"Labels with a name of their own, which MRTM predicts: {named}."
    return f"{pages.table(header, rows, text_columns=2)}\n\n{note}"


def _plot(figures: Figures, m3p: Figures | None, path: Path) -> str:
    """Draw settings by language; return the Markdown that shows the image."""
    systems: list[tuple[str, Figures, Sequence[str]]] = [(FULL, figures, _SETTINGS)]
    if m3p is not None and m3p["test_images"] == figures["test_images"]:
        systems.append((m3p_page.FULL, m3p, SHARED))
    series = []
    for system, of_system, settings in systems:
        for on in settings:
            values = _by_language(of_system, (system, on), figures["languages"])
            if values:
                name = f"{system} {FINE_TUNED[on]}"
                if "average" in values:
                    name += f" {values['average']:.1f}"
                series.append(language_plot.Dots(name, on, values, hollow=system != FULL))
    if not series:
        return NOT_MEASURED
    columns = [*figures["languages"], "average"]
    path.parent.mkdir(parents=True, exist_ok=True)
    y_label = f"mR, %; the first {figures['test_images']} test pictures"
    path.write_text(language_plot.plot(columns, series, y_label=y_label), encoding="utf-8")
    return f"![mR by language and setting](images/{path.name})"


def _by_language(figures: Figures, setting: Setting, languages: Sequence[str]) -> dict[str, float]:
    recalls = Recalls.of(figures, setting)
    columns = {**{code: [code] for code in languages}, "average": list(languages)}
    means = {name: recalls.mean(codes) for name, codes in columns.items()}
    return {name: statistics.mean(by_seed.values()) for name, by_seed in means.items() if by_seed}


if __name__ == "__main__":
    main()
