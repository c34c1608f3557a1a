"""Fill the page of SMALR's results and draw mR against the number of parameters.

    python -m benchmarks.reports.smalr_page

Reads results/smalr_flickr8k.json, fills docs/results-smalr.md and draws docs/images/smalr.svg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.reports.pages import NOT_MEASURED
from benchmarks.results_io import DOCS, read_results
from polyglance.reproduce.plots import scatter_plot

PAGE = DOCS / "results-smalr.md"
PLOT = "smalr.svg"

ROWS = (
    "translate to English", "EmbN", "parallel EmbN", "S-LIWE", "L-LIWE", "MULE",
    "frequency 20", "frequency 5", "dictionary 20", "dictionary 5", "PCA 50", "PCA 100", "PCA 200",
    "LA", "HEM, K 1000", "HEM", "SMALR, 2,500 tokens", "SMALR",
)  # fmt: skip
"""Models in the order of the paper's tables."""
VARIANTS = {"clc-a": "CLC-A", "clc-c": "CLC-C", "clc-c-paper": "CLC-C as in the paper"}
SOURCES = {"dictionary": "word by word", "dataset": "others' captions: an upper bound"}
SERIES = {
    "frequency": ("frequency 20", "frequency 5", "MULE"),
    "dictionary": ("dictionary 20", "dictionary 5", "MULE"),
    "PCA": ("PCA 50", "PCA 100", "PCA 200", "MULE"),
}
"""MULE made smaller, joined by lines as in the paper's Figure 3."""
POINTS = (
    "EmbN", "parallel EmbN", "S-LIWE", "L-LIWE", "MULE", "LA", "HEM", "HEM, K 1000", "SMALR",
    "SMALR, 2,500 tokens",
)  # fmt: skip
COVERED = ("MULE", "frequency 20", "LA", "HEM, K 1000", "SMALR")
"""Models in the table of vocabulary coverage."""
MIN_RECALL, MAX_TRAINABLE, MAX_AT_TEST = 36.0, 20e6, 8e6
"""The goals: mR of SMALR with CLC, parameters of SMALR in training and at test time."""
CHANCE_RECALL = 1.0
"""mR below which a ranking is no better than chance: equal scores are ranked last."""

UNDECIDED = "not decided until CLC-C is measured again"
"""The verdict on figures of CLC-C by a training of which one network failed."""

MASKING_RESULTS = "smalr_masking"
"""The file that takes masked modelling apart."""
_BASE, _CAPTIONS = "HEM", "masked captions, no equation 2"

Figures = Mapping[str, Any]


def main() -> None:
    fill(read_results("smalr_flickr8k"))
    fill_masking(read_results(MASKING_RESULTS))


def fill_masking(figures: Figures, document: Path = PAGE) -> None:
    """Fill the part of a document that takes masked modelling apart."""
    settings = figures["settings"]
    languages = next(iter(settings.values()))["test"]
    rows = [
        [name, *(seeds.cell(spread) for spread in measured["test"].values())]
        for name, measured in settings.items()
    ]
    lines = []
    averages = {name: measured["test"]["average"] for name, measured in settings.items()}
    if {_BASE, _CAPTIONS} <= set(averages):
        found = _difference(averages[_CAPTIONS], averages[_BASE])
        lines.append(
            f"Masked captions in the matching loss gain: {seeds.verdict(found)}"
            f" ({seeds.signed(found)} to {_BASE})."
        )
        for name in averages:
            if name not in (_BASE, _CAPTIONS):
                found = _difference(averages[name], averages[_CAPTIONS])
                lines.append(
                    f"{name}, above masked captions without equation 2: {seeds.verdict(found)}"
                    f" ({seeds.signed(found)})."
                )
    how = (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}, with"
        f" {len(figures['seeds'])} seeds."
    )
    table = pages.table(["model", *languages], rows)
    pages.fill(document, {"masking": "\n\n".join([table, pages.bullets(lines), how])})


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Fill the tables of a document and draw the plot beside it."""
    settings = figures["settings"]
    pages.fill(
        document,
        {
            "models": model_table(settings),
            "coverage": coverage_table(settings),
            "tuning": tuning(settings),
            "consistency": consistency_table(settings),
            "order": pages.bullets(claims(settings)),
            "how": how(figures),
        },
    )
    plot = document.parent / "images" / PLOT
    plot.parent.mkdir(exist_ok=True)
    plot.write_text(size_plot(settings), encoding="utf-8")
    print(f"wrote {plot}")


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
        rows.append([name, *(_millions(measured[size]) for size in sizes), *recalls])
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


def consistency_table(settings: Figures) -> str:
    """Format SMALR alone, and with CLC by the source of the translations."""
    if "consistency" not in settings.get("SMALR", {}):
        return NOT_MEASURED
    smalr = settings["SMALR"]
    rows = [["SMALR", "", "", *map(seeds.cell, smalr["test"].values())]]
    for source, label in SOURCES.items():
        measured = smalr["consistency"][source]
        for variant, title in VARIANTS.items():
            if _failed(measured[variant]["average"]):
                continue
            recalls = (seeds.cell(measured[variant][language]) for language in smalr["test"])
            count = measured["parameters"][variant]
            rows.append([f"SMALR + {title}", label, f"{count:,}", *recalls])
    header = ["model", "in the other languages", "parameters", *smalr["test"]]
    return pages.table(header, rows, text_columns=2)


def claims(settings: Figures) -> list[str]:
    """State each finding of the paper, and whether the figures here agree."""
    lines = []
    averages = {name: measured["test"]["average"] for name, measured in settings.items()}
    for source in SOURCES:
        for variant, title in VARIANTS.items():
            measured = settings.get("SMALR", {}).get("consistency", {}).get(source)
            if measured and not _failed(measured[variant]["average"]):
                averages[f"{title}, {source}"] = measured[variant]["average"]

    untrusted = _untrusted(settings)

    def above(better: str, worse: str, paper: str) -> None:
        if better in averages and worse in averages:
            gain = _difference(averages[better], averages[worse])
            verdict = UNDECIDED if better.startswith(untrusted) else seeds.verdict(gain)
            lines.append(f"{paper}: {verdict} ({better} to {worse}: {seeds.signed(gain)}).")

    above("HEM", "LA", "HEM above LA (the paper: +2.4 on Multi30K, +3.4 on MSCOCO)")
    above("SMALR", "HEM", "SMALR at or above HEM (+1.4, +0.8)")
    above("CLC-A, dictionary", "SMALR", "CLC-A above SMALR (+3.2, +0.9), translated word by word")
    above("CLC-A, dictionary", "HEM", "CLC-A above HEM, translated word by word")
    for title in list(VARIANTS.values())[1:]:
        above(f"{title}, dictionary", "SMALR", f"{title} above SMALR, word by word")
        above(f"{title}, dictionary", "HEM", f"{title} above HEM, word by word")
        above(
            f"{title}, dictionary",
            "CLC-A, dictionary",
            f"{title} above CLC-A (+0.5, +1.1), word by word",
        )
    above("CLC-A, dataset", "SMALR", "CLC-A above SMALR, the upper bound")
    above("CLC-C, dataset", "CLC-A, dataset", "CLC-C above CLC-A, the upper bound")
    above("HEM", "PCA 50", "HEM above MULE with 50-dimensional words, none of them shared")
    above("SMALR", "S-LIWE", "SMALR above S-LIWE (+5.8, +11.0)")
    above("SMALR", "L-LIWE", "SMALR above L-LIWE (+4.2, +7.4)")
    above("SMALR", "MULE", "SMALR at or above MULE (+0.3, +0.8)")
    lines += _best_of_all(averages)
    if {"SMALR", "MULE"} <= set(settings):
        lines.append(_fifth(settings["SMALR"], settings["MULE"]))
    if "SMALR" in settings:
        lines += _goals(settings["SMALR"], averages, untrusted)
    return lines


def _failed(recall: Figures) -> bool:
    """Return whether CLC-C ended with equal scores for all pairs: no result, but a failed fit."""
    return bool(recall["mean"] < CHANCE_RECALL)


def _untrusted(settings: Figures) -> tuple[str, ...]:
    """Return how the names of rows begin whose figures decide nothing.

    All networks of CLC-C are trained alike: where one failed, none is judged.
    """
    measured = settings.get("SMALR", {}).get("consistency", {})
    trained = [variant for variant, title in VARIANTS.items() if title.startswith("CLC-C")]
    failed = any(_failed(by[variant]["average"]) for by in measured.values() for variant in trained)
    return ("CLC-C",) if failed else ()


def _best_of_all(averages: Figures) -> list[str]:
    """Say whether SMALR is above every smaller MULE, and by how much some are above it."""
    names = {name for series in SERIES.values() for name in series if name in averages} - {"MULE"}
    if "SMALR" not in averages or not names:
        return []
    reduced = [name for name in ROWS if name in names]
    gains = {name: _difference(averages[name], averages["SMALR"]) for name in reduced}
    better = [f"{name}: {seeds.signed(gain)}" for name, gain in gains.items() if gain.mean > 0]
    # A single one above it refutes the claim; that none is takes all of them below it.
    if any(seeds.verdict(gain) == "yes" for gain in gains.values()):
        verdict = "no"
    elif all(seeds.verdict(gain) == "no" for gain in gains.values()):
        verdict = "yes"
    else:
        verdict = "not decided"
    if better:
        verdict += f" ({'; '.join(better)})"
    return [f"SMALR above every way of making MULE smaller (Figure 3): {verdict}."]


def _fifth(smalr: Figures, mule: Figures) -> str:
    """Compare SMALR's parameters with a fifth of MULE's."""
    whole = smalr["trainable_parameters"] / mule["trainable_parameters"]
    words = smalr["word_parameters"] / mule["word_parameters"]
    branches = smalr["test_time_parameters"]
    share = branches / mule["trainable_parameters"]
    return (
        f"With at most a fifth of MULE's parameters: {'yes' if whole <= 0.2 else 'no'} for all"
        f" trainable parameters ({whole:.0%} of {_millions(mule['trainable_parameters'])}), of"
        f" which the branches alone, the same in both, are {share:.0%}"
        + (": no word model can reach a fifth here" if share > 0.2 else "")
        + f"; {'yes' if words <= 0.2 else 'no'} for words alone ({words:.0%} of"
        f" {_millions(mule['word_parameters'])})."
    )


def _goals(smalr: Figures, averages: Mapping[str, Any], untrusted: tuple[str, ...]) -> list[str]:
    """Say which goals were reached, with translations word by word, not with the upper bound."""
    lines = []
    for title in VARIANTS.values():
        recall = averages.get(f"{title}, dictionary")
        if recall is not None:
            found = seeds.verdict(seeds.gain(recall["values"], MIN_RECALL))
            lines.append(
                f"SMALR with {title}, word by word, of at least {MIN_RECALL:.0f} mR:"
                f" {UNDECIDED if title.startswith(untrusted) else found} ({recall['mean']:.1f})."
            )
    for size, limit, label in (
        ("trainable_parameters", MAX_TRAINABLE, "trainable"),
        ("test_time_parameters", MAX_AT_TEST, "at test time"),
    ):
        verdict = "yes" if smalr[size] <= limit else "no"
        lines.append(
            f"SMALR with at most {_millions(limit)} {label}: {verdict} ({_millions(smalr[size])})."
        )
    return lines


def _difference(better: Figures, worse: Figures) -> seeds.Gain:
    return seeds.gain(better["values"], worse["values"])


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
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(settings)} settings with {len(figures['seeds'])} seeds each, {seconds:.0f} s a run"
        f" with {figures['runs_at_once']} at once, {figures['seconds']['total'] / 60:.0f} minutes"
        " in all."
    )


def _millions(count: float) -> str:
    return f"{count / 1e6:.1f}M"


if __name__ == "__main__":
    main()
