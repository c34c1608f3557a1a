"""Fill the page of SMALR's results and draw mR against the number of parameters.

    python -m benchmarks.reports.smalr_page

Reads results/smalr_flickr8k.json and smalr_masking.json, and where they exist
smalr_consistency.json (SMALR measured again with CLC) and smalr_masking_readings.json (further
rows of masked modelling), all of which `polyglance reproduce` writes. Fills docs/results-smalr.md
and draws docs/images/smalr.svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.reports import pages, seeds
from benchmarks.reports.pages import NOT_MEASURED
from benchmarks.reports.smalr_claims import (
    MASKING_ROWS,
    ROWS,
    SERIES,
    SOURCES,
    VARIANTS,
    Figures,
    claims,
    failed,
    masking_claims,
    millions,
)
from benchmarks.results_io import DOCS, RESULTS, read_results
from polyglance.reproduce.plots import scatter_plot

PAGE = DOCS / "results-smalr.md"
PLOT = "smalr.svg"

POINTS = (
    "EmbN", "parallel EmbN", "S-LIWE", "L-LIWE", "MULE", "LA", "HEM", "HEM, K 1000", "SMALR",
    "SMALR, 2,500 tokens",
)  # fmt: skip
COVERED = ("MULE", "frequency 20", "LA", "HEM, K 1000", "SMALR")
"""Models in the table of vocabulary coverage."""
CONSISTENCY_RESULTS = "smalr_consistency"
"""SMALR with CLC, measured again."""
MASKING_RESULTS = ("smalr_masking", "smalr_masking_readings")
"""Files that take masked modelling apart."""


def main() -> None:
    masking = [read_results(name) for name in MASKING_RESULTS if _exists(name)]
    again = read_results(CONSISTENCY_RESULTS) if _exists(CONSISTENCY_RESULTS) else None
    fill(read_results("smalr_flickr8k"), masking=masking, again=again)


def _exists(name: str) -> bool:
    return (RESULTS / f"{name}.json").is_file()


def fill(
    figures: Figures,
    document: Path = PAGE,
    *,
    masking: Sequence[Figures] = (),
    again: Figures | None = None,
) -> None:
    """Fill the tables of a document and draw the plot beside it.

    Args:
        figures: All models.
        document: The page.
        masking: Files that take masked modelling apart; none leaves that part as it is.
        again: SMALR and its CLC, where these were measured again.
    """
    settings = figures["settings"]
    lines = claims(figures, again)
    lines_masking = masking_claims(masking)
    order, apart = seeds.write_lines(lines, lines_masking)
    contents = {
        "models": model_table(settings),
        "coverage": coverage_table(settings),
        "tuning": tuning(settings),
        "consistency": consistency_table(again or figures),
        "order": pages.bullets(order),
        "compared": seeds.how_compared(lines, lines_masking),
        "how": how(figures),
    }
    if masking:
        measured = " ".join(_how_masking(one) for one in masking)
        table = masking_table(masking)
        contents["masking"] = "\n\n".join([table, pages.bullets(apart), measured])
    pages.fill(document, contents)
    plot = document.parent / "images" / PLOT
    plot.parent.mkdir(exist_ok=True)
    plot.write_text(size_plot(settings), encoding="utf-8")
    print(f"wrote {plot}")


def masking_table(masking: Sequence[Figures]) -> str:
    """Format mR by language, a row per reading of masked modelling."""
    settings = {name: found for one in masking for name, found in one["settings"].items()}
    ordered = [name for name in MASKING_ROWS if name in settings]
    rows = [[name, *map(seeds.cell, settings[name]["test"].values())] for name in ordered]
    return pages.table(["model", *settings[ordered[0]]["test"]], rows)


def _how_masking(figures: Figures) -> str:
    rows = f" ({', '.join(figures['settings'])})" if len(figures["settings"]) < 4 else ""
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}, with"
        f" {len(figures['seeds'])} seeds{rows}."
    )


def model_table(settings: Figures) -> str:
    """Format sizes and mR by language, a row per model."""
    sizes = {
        "trainable_parameters": "trainable",
        "word_parameters": "of words",
        "pretraining_parameters": "in pre-training",
        "test_time_parameters": "at test time",
    }
    rows = []
    for name in (row for row in ROWS if row in settings):
        measured = settings[name]
        recalls = [seeds.cell(spread) for spread in measured["test"].values()]
        rows.append([name, *(millions(measured[size]) for size in sizes), *recalls])
    languages = next(iter(settings.values()))["test"]
    return pages.table(["model", *sizes.values(), *languages], rows)


def coverage_table(settings: Figures) -> str:
    """Format the shares of test words that a model owns, shares and does not know, by language."""
    rows = []
    for name in (row for row in COVERED if row in settings):
        shares = settings[name]["coverage"]
        cells = (
            " / ".join(f"{100 * share:.1f}" for share in by.values()) for by in shares.values()
        )
        rows.append([name, *cells])
    languages = next(iter(settings.values()))["coverage"]
    return pages.table(["own / shared / unknown, %", *languages], rows)


def tuning(settings: Figures) -> str:
    """Say which models have a learning rate of their own."""
    rates: dict[str, list[str]] = {}
    for name in (row for row in ROWS if row in settings):
        for change in settings[name]["changes"]:
            key, _, value = change.partition("=")
            if key == "loop.learning_rate":
                rates.setdefault(value, []).append(name)
    if not rates:
        return "All rows are trained at the learning rate chosen for SMALR."
    own = "; ".join(f"{rate} for {', '.join(names)}" for rate, names in rates.items())
    return f"Learning rates other than SMALR's, by a sweep of each on validation: {own}."


def consistency_table(figures: Figures) -> str:
    """Format SMALR alone, and with CLC by the source of the translations."""
    smalr = figures["settings"].get("SMALR", {})
    if "consistency" not in smalr:
        return NOT_MEASURED
    rows = [["SMALR", "", "", *map(seeds.cell, smalr["test"].values())]]
    for source, label in SOURCES.items():
        measured = smalr["consistency"][source]
        for variant, title in VARIANTS.items():
            if failed(measured[variant]["average"]):
                continue
            recalls = (seeds.cell(measured[variant][language]) for language in smalr["test"])
            count = measured["parameters"][variant]
            rows.append([f"SMALR + {title}", label, f"{count:,}", *recalls])
    header = ["model", "in the other languages", "parameters", *smalr["test"]]
    table = pages.table(header, rows, text_columns=2)
    return (
        f"{table}\n\nMeasured {figures['date']} at {figures['commit']} on {figures['hardware']},"
        f" with {len(figures['seeds'])} seeds."
    )


def size_plot(settings: Figures) -> str:
    """Draw mR against trainable parameters, as the paper's Figure 3."""

    def place(name: str) -> tuple[float, float]:
        measured = settings[name]
        return measured["trainable_parameters"] / 1e6, measured["test"]["average"]["mean"]

    lines = {
        title: [(name.rpartition(" ")[2], *place(name)) for name in names if name in settings]
        for title, names in SERIES.items()
    }
    points = {name: place(name) for name in POINTS if name in settings}
    return scatter_plot.plot(
        points, lines, x_label="trainable parameters, millions", y_label="mR, mean over languages"
    )


def how(figures: Figures) -> str:
    """Say when, where and how this was measured."""
    settings: Sequence[Figures] = list(figures["settings"].values())
    seconds = sum(m["seconds"] + m["pretraining_seconds"] for m in settings) / len(settings)
    wall = figures["wall_seconds"] if "wall_seconds" in figures else figures["seconds"]["total"]
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(settings)} settings with {len(figures['seeds'])} seeds each, {seconds:.0f} s a run"
        f" with {figures['runs_at_once']} at once, {wall / 60:.0f} minutes in all."
    )


if __name__ == "__main__":
    main()
