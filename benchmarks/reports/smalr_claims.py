"""What the page of SMALR's results claims: the paper's findings, masked modelling, and goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.reports import seeds
from benchmarks.reports.seeds import Line

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
MASKING_ROWS = (
    "HEM", "masked captions, no equation 2", "SMALR: both, averaged over pairs",
    "both, summed over languages", "both, summed over all pairs", "equation 2 alone, averaged",
    "equation 2 alone, summed over all pairs",
)  # fmt: skip
"""Readings of masked modelling."""
MIN_RECALL, MAX_TRAINABLE, MAX_AT_TEST = 36.0, 20e6, 8e6
"""The goals: mR of SMALR with CLC, parameters of SMALR in training and at test time."""
CHANCE_RECALL = 1.0
"""mR below which a ranking is no better than chance: equal scores are ranked last."""

UNDECIDED = "not decided until CLC-C is measured again"
"""The verdict on figures of CLC-C by a training of which one network failed."""

_BASE, _CAPTIONS = MASKING_ROWS[:2]
_ROW_SOURCES = {"dictionary": "word by word", "dataset": "others' captions"}
"""Sources of translations, as the rows of the target call them."""

Figures = Mapping[str, Any]


class Models:
    """The rows of the page: SMALR with CLC, and all models without."""

    def __init__(self, figures: Figures, again: Figures | None = None) -> None:
        """Collect them from all models, and from SMALR measured again, which has CLC then."""
        self.figures, self.again = figures, again or figures
        self.averages = {
            name: measured["test"]["average"] for name, measured in figures["settings"].items()
        }
        smalr = self.again["settings"].get("SMALR", {})
        self.base = smalr.get("test", {}).get("average")
        """SMALR of the training that CLC was measured with."""
        self.consistency = {
            f"{title}, {source}": measured[variant]["average"]
            for source, measured in smalr.get("consistency", {}).items()
            for variant, title in VARIANTS.items()
            if not failed(measured[variant]["average"])
        }
        # All networks of CLC-C are trained alike: where one failed, none is judged.
        trained = [variant for variant, title in VARIANTS.items() if title.startswith("CLC-C")]
        self.untrusted = ("CLC-C",) if any(
            failed(measured[variant]["average"])
            for measured in smalr.get("consistency", {}).values()
            for variant in trained
        ) else ()  # fmt: skip

    def gain(self, better: str, worse: str) -> seeds.Gain | None:
        """Compare two rows; over queries where the results do so."""
        has_clc = better in self.consistency
        figures = self.again if has_clc else self.figures
        found = seeds.stored(figures, row_name(better), row_name(worse))
        if found is not None:
            return found
        rows = {**self.averages, **self.consistency}
        if has_clc and self.base is not None:
            rows["SMALR"] = self.base
        if better not in rows or worse not in rows:
            return None
        return seeds.gain(rows[better]["values"], rows[worse]["values"])


def row_name(name: str) -> str:
    """Return the name of a row in the target."""
    title, _, source = name.rpartition(", ")
    return f"SMALR + {title}, {_ROW_SOURCES[source]}" if source in _ROW_SOURCES else name


def claims(figures: Figures, again: Figures | None = None) -> list[Line]:
    """State each finding of the paper, and whether the figures here agree."""
    models = Models(figures, again)
    lines = []
    for better, worse, paper in compared_rows():
        gain = models.gain(better, worse)
        if gain is not None:
            undecided = better.startswith(models.untrusted)
            lines.append(Line(partial(_above, better, worse, paper, undecided), (gain,)))
    settings = figures["settings"]
    lines += _best_of_all(models)
    if {"SMALR", "MULE"} <= set(settings):
        lines.append(seeds.plain(_fifth(settings["SMALR"], settings["MULE"])))
    if "SMALR" in settings:
        lines += _goals(settings["SMALR"], models)
    return lines


def compared_rows() -> list[tuple[str, str, str]]:
    """Return what is compared: two rows, and the paper's finding."""
    compared = [
        ("HEM", "LA", "HEM above LA (the paper: +2.4 on Multi30K, +3.4 on MSCOCO)"),
        ("SMALR", "HEM", "SMALR at or above HEM (+1.4, +0.8)"),
        ("CLC-A, dictionary", "SMALR", "CLC-A above SMALR (+3.2, +0.9), translated word by word"),
        ("CLC-A, dictionary", "HEM", "CLC-A above HEM, translated word by word"),
    ]
    for title in list(VARIANTS.values())[1:]:
        row = f"{title}, dictionary"
        clc_a = f"{title} above CLC-A (+0.5, +1.1), word by word"
        compared += [
            (row, "SMALR", f"{title} above SMALR, word by word"),
            (row, "HEM", f"{title} above HEM, word by word"),
            (row, "CLC-A, dictionary", clc_a),
        ]
    return [
        *compared,
        ("CLC-A, dataset", "SMALR", "CLC-A above SMALR, the upper bound"),
        ("CLC-C, dataset", "CLC-A, dataset", "CLC-C above CLC-A, the upper bound"),
        ("HEM", "PCA 50", "HEM above MULE with 50-dimensional words, none of them shared"),
        ("SMALR", "S-LIWE", "SMALR above S-LIWE (+5.8, +11.0)"),
        ("SMALR", "L-LIWE", "SMALR above L-LIWE (+4.2, +7.4)"),
        ("SMALR", "MULE", "SMALR at or above MULE (+0.3, +0.8)"),
    ]


def _above(better: str, worse: str, paper: str, undecided: bool, gain: seeds.Gain) -> str:
    verdict = UNDECIDED if undecided else seeds.verdict(gain)
    return f"{paper}: {verdict} ({better} to {worse}: {seeds.signed(gain)})."


def masking_claims(masking: Sequence[Figures]) -> list[Line]:
    """Say what masked captions gain, and what equation 2 adds to them by each reading."""
    averages = {
        name: measured["test"]["average"]["values"]
        for figures in masking
        for name, measured in figures["settings"].items()
    }
    if not {_BASE, _CAPTIONS} <= set(averages):
        return []

    def gain(better: str, worse: str) -> seeds.Gain:
        found = (seeds.stored(figures, better, worse) for figures in masking)
        return next(filter(None, found), None) or seeds.gain(averages[better], averages[worse])

    first = Line(
        lambda found: (
            f"Masked captions in the matching loss gain: {seeds.verdict(found)}"
            f" ({seeds.signed(found)} to {_BASE})."
        ),
        (gain(_CAPTIONS, _BASE),),
    )
    others = [name for name in MASKING_ROWS[2:] if name in averages]
    return [first, *(Line(partial(_over_captions, n), (gain(n, _CAPTIONS),)) for n in others)]


def _over_captions(name: str, gain: seeds.Gain) -> str:
    return (
        f"{name}, above masked captions without equation 2: {seeds.verdict(gain)}"
        f" ({seeds.signed(gain)})."
    )


def failed(recall: Figures) -> bool:
    """Return whether CLC-C ended with equal scores for all pairs: no result, but a failed fit."""
    return bool(recall["mean"] < CHANCE_RECALL)


def _best_of_all(models: Models) -> list[Line]:
    """Say whether SMALR is above every smaller MULE, and by how much some are above it."""
    smaller = {name for series in SERIES.values() for name in series} - {"MULE"}
    names = [name for name in ROWS if name in smaller and name in models.averages]
    gains = [models.gain("SMALR", name) for name in names]
    known = [(name, gain) for name, gain in zip(names, gains, strict=True) if gain is not None]
    if not known:
        return []

    def text(*corrected: seeds.Gain) -> str:
        verdicts = [seeds.verdict(gain) for gain in corrected]
        # A single one above it refutes the claim; that none is takes all of them below it.
        if "no" in verdicts:
            verdict = "no"
        elif set(verdicts) == {"yes"}:
            verdict = "yes"
        else:
            verdict = "not decided"
        better = [
            f"to {name}: {seeds.signed(gain)}"
            for (name, _), gain in zip(known, corrected, strict=True)
            if gain.mean < 0
        ]
        if better:
            verdict += f" ({'; '.join(better)})"
        return f"SMALR above every way of making MULE smaller (Figure 3): {verdict}."

    return [Line(text, tuple(gain for _, gain in known))]


def _fifth(smalr: Figures, mule: Figures) -> str:
    """Compare SMALR's parameters with a fifth of MULE's."""
    whole = smalr["trainable_parameters"] / mule["trainable_parameters"]
    words = smalr["word_parameters"] / mule["word_parameters"]
    branches = smalr["test_time_parameters"]
    share = branches / mule["trainable_parameters"]
    return (
        f"With at most a fifth of MULE's parameters: {'yes' if whole <= 0.2 else 'no'} for all"
        f" trainable parameters ({whole:.0%} of {millions(mule['trainable_parameters'])}), of"
        f" which the branches alone, the same in both, are {share:.0%}"
        + (": no word model can reach a fifth here" if share > 0.2 else "")
        + f"; {'yes' if words <= 0.2 else 'no'} for words alone ({words:.0%} of"
        f" {millions(mule['word_parameters'])})."
    )


def _goals(smalr: Figures, models: Models) -> list[Line]:
    """Say which goals were reached, with translations word by word, not with the upper bound."""
    lines = []
    for title in VARIANTS.values():
        recall = models.consistency.get(f"{title}, dictionary")
        if recall is not None:
            undecided = title.startswith(models.untrusted)
            text = partial(_recall_goal, title, recall["mean"], undecided)
            lines.append(Line(text, (seeds.gain(recall["values"], MIN_RECALL),)))
    for size, limit, label in (
        ("trainable_parameters", MAX_TRAINABLE, "trainable"),
        ("test_time_parameters", MAX_AT_TEST, "at test time"),
    ):
        verdict = "yes" if smalr[size] <= limit else "no"
        lines.append(
            seeds.plain(
                f"SMALR with at most {millions(limit)} {label}: {verdict}"
                f" ({millions(smalr[size])})."
            )
        )
    return lines


def _recall_goal(title: str, mean: float, undecided: bool, above: seeds.Gain) -> str:
    verdict = UNDECIDED if undecided else seeds.verdict(above)
    return (
        f"SMALR with {title}, word by word, of at least {MIN_RECALL:.0f} mR: {verdict}"
        f" ({mean:.1f})."
    )


def millions(count: float) -> str:
    """Format a number of parameters."""
    return f"{count / 1e6:.1f}M"
