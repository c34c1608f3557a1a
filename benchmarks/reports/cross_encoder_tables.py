"""Tables of models that read a sentence beside a picture: what M3P's and UC2's pages share.

A row of a table is a `Setting`: a pre-training, and what it was fine-tuned on. `Measured`
is what its runs gave; claims compare two settings seed by seed, beside the paper's figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds

Figures = Mapping[str, Any]
Setting = tuple[str, str]
"""A pre-training, and what it was fine-tuned on."""
Paper = Mapping[Setting, tuple[float, ...]]
"""mR of a paper on Multi30K: en, de, fr, cs."""

NONE, ENGLISH, EACH, ALL = "nothing", "en", "each", "all"
"""What is fine-tuned on; `NONE` is measured alone, `EACH` a run a language by its code."""
TRANSLATED = "translate-test"
"""Fine-tuned on English, and asked in English: captions are translated."""
FINE_TUNED = {
    NONE: "without fine-tuning", ENGLISH: "on English", TRANSLATED: "on English, translate-test",
    EACH: "on each", ALL: "on all",
}  # fmt: skip
UNKNOWN = "Not measured yet."
LEAST_RATE = 8000
"""Pairs a second that a training step is to read on an accelerator."""


@dataclass(frozen=True)
class Table:
    """A table of the paper: what its rows are called, and which settings they are."""

    header: tuple[str, ...]
    rows: Mapping[tuple[str, ...], Setting]
    paper_fine_tunes_on: str | None = None
    """Where that is not what we do."""

    def paper(self, setting: Setting) -> Setting:
        """The paper's row."""
        return setting[0], self.paper_fine_tunes_on or setting[1]

    def run_names(self, languages: Sequence[str]) -> list[str]:
        """The runs that the table is made of."""
        return [name for setting in self.rows.values() for name in run_names(setting, languages)]


def run_names(setting: Setting, languages: Iterable[str]) -> list[str]:
    """The runs that a row is made of."""
    pretraining, on = setting
    tuned_on = {EACH: tuple(languages), TRANSLATED: (ENGLISH,)}.get(on, (on,))
    return [f"{pretraining} > {name}" for name in tuned_on]


@dataclass(frozen=True)
class Measured:
    """mR of a setting by language and seed, as far as it is there."""

    recalls: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, figures: Figures, setting: Setting) -> Measured:
        """What the runs of a setting gave."""
        found: dict[str, Mapping[int, float]] = {}
        names, languages = run_names(setting, figures["languages"]), list(figures["languages"])
        told_of = [[language] for language in languages] if setting[1] == EACH else [languages]
        way = "translated" if setting[1] == TRANSLATED else "all_pairs"
        for name, codes in zip(names, told_of, strict=True):
            run = figures["runs"].get(name, {"seeds": [], "test": {}})
            measured = run["test"].get(way, {})
            for code in codes:
                if code in measured:
                    found[code] = dict(zip(run["seeds"], measured[code]["seeds"], strict=True))
        return cls(found)

    def mean(self, languages: Sequence[str]) -> dict[int, float]:
        """Over languages, by seed; nothing where a language is missing."""
        if not languages or not all(language in self.recalls for language in languages):
            return {}
        some = [self.recalls[language] for language in languages]
        common = [seed for seed in some[0] if all(seed in recalls for recalls in some)]
        return {seed: sum(recalls[seed] for recalls in some) / len(some) for seed in common}


def of_whole_seeds(figures: Figures, beside: Figures | None = None) -> Figures:
    """Without seeds that some run has and another has not yet: rows would differ by luck.

    ``beside`` are figures of another system in the same table, whose runs must have them too.
    Where no seed has all runs, everything stays.
    """
    runs = [*figures["runs"].values(), *(beside["runs"].values() if beside else ())]
    whole = {seed for seed in figures["seeds"] if all(seed in run["seeds"] for run in runs)}
    if not whole:
        return figures
    return {
        **figures,
        "runs": {
            name: {
                **_of_seeds(run, [seed in whole for seed in run["seeds"]]),
                "seeds": [seed for seed in run["seeds"] if seed in whole],
            }
            for name, run in figures["runs"].items()
        },
    }


def _of_seeds(found: Any, kept: Sequence[bool]) -> Any:
    """The same with all figures of seeds, however deep, of some seeds alone."""
    if not isinstance(found, Mapping):
        return found
    if found.keys() == seeds.spread([0.0]).keys():
        return seeds.spread(
            [value for value, keep in zip(found["seeds"], kept, strict=True) if keep]
        )
    return {name: _of_seeds(value, kept) for name, value in found.items()}


def others(figures: Figures) -> list[str]:
    """All languages but English."""
    return [language for language in figures["languages"] if language != ENGLISH]


def table(figures: Figures, shape: Table, paper: Paper) -> str:
    """A row a setting: mR by language, over the others than English, and over all."""
    rows = []
    for labels, setting in shape.rows.items():
        english, *rest = paper[shape.paper(setting)]
        cells = recall_cells(figures, setting)
        rows.append([*labels, *cells, f"{english:.1f}, {sum(rest) / len(rest):.1f}"])
    header = [*shape.header, *figures["languages"], "others", "average", "paper: en, others"]
    return pages.table(header, rows, text_columns=len(shape.header))


def recall_cells(figures: Figures, setting: Setting) -> list[str]:
    """mR of a setting by language, over the others than English, and over all."""
    languages, measured = list(figures["languages"]), Measured.of(figures, setting)
    columns = [*([code] for code in languages), others(figures), languages]
    return [_cell(measured.mean(column)) for column in columns]


def _cell(by_seed: Mapping[int, float]) -> str:
    return seeds.cell(seeds.spread(list(by_seed.values()))) if by_seed else "–"


def listed(claims: Iterable[str]) -> str:
    """Sentences one below the other."""
    return "\n".join(f"- {claim}" for claim in claims) or UNKNOWN


def gain(
    figures: Figures, better: Setting, worse: Setting, languages: Sequence[str]
) -> seeds.Gain | None:
    """How far one setting is above another, over the seeds that both have."""
    return gain_over(Measured.of(figures, better), Measured.of(figures, worse), languages)


def gain_over(better: Measured, worse: Measured, languages: Sequence[str]) -> seeds.Gain | None:
    """The same of what was measured, which may be of two systems."""
    above, below = better.mean(languages), worse.mean(languages)
    common = [seed for seed in above if seed in below]
    if not common:
        return None
    return seeds.gain([above[seed] for seed in common], [below[seed] for seed in common])


def paper_gain(paper: Paper, better: Setting, worse: Setting, *, english: bool = False) -> float:
    """The same in the paper, of English or of the mean of the others."""
    part = slice(0, 1) if english else slice(1, 4)
    above, below = paper[better][part], paper[worse][part]
    return (sum(above) - sum(below)) / len(above)


def helps(
    figures: Figures, paper: Paper, compared: Iterable[tuple[str, Setting, Setting]]
) -> list[str]:
    """Whether one setting is above another in other languages than English, a sentence each."""
    lines = []
    for text, better, worse in compared:
        found = gain(figures, better, worse, others(figures))
        if found is not None:
            lines.append(
                f"{text} (the paper: {paper_gain(paper, better, worse):+.1f}):"
                f" {seeds.verdict(found)} ({seeds.signed(found)})."
            )
    return lines


def way(found: seeds.Gain) -> str:
    """A gain, a loss, or neither."""
    words = {"yes": "a gain", "no": "a loss"}
    first, comma, rest = seeds.verdict(found).partition(",")
    return f"{words.get(first, first)}{comma}{rest} ({seeds.signed(found)})"


def company(found: Figures) -> str:
    """Whether runs had the machine for themselves."""
    return ", with other runs beside it" if found["runs_at_once"] > 1 else ""


def speed(path: Path) -> str:
    """How many pairs a training step reads a second, packed and padded, as its benchmark wrote."""
    if not path.is_file():
        return UNKNOWN
    found = json.loads(path.read_text(encoding="utf-8"))
    rates: dict[str, Any] = found["pairs_per_second"]
    by_objective = any(isinstance(rate, dict) for rate in rates.values())
    names = list(next(iter(rates.values()))) if by_objective else ["pairs a second"]
    rows = [
        [way, *(f"{one:,}" for one in (rate.values() if by_objective else [rate]))]
        for way, rate in rates.items()
    ]
    told = (
        f"Measured {found['date']} at {found['commit']} on {found['hardware']}, {found['pairs']:,}"
        f" pairs a step ([{path.name}](../benchmarks/results/{path.name})):"
    )
    packed = rates["packed"]
    judged = {name: packed[name] for name in ("mixture", "mean")} if by_objective else {"": packed}
    goal = f"At least {LEAST_RATE:,} pairs a second were set out for, packed: " + ", ".join(
        f"{'yes' if rate >= LEAST_RATE else 'no'}{name and f' by the {name}'} ({rate:,})"
        for name, rate in judged.items()
    )
    return f"{told}\n\n{pages.table(['', *names], rows)}\n\n{goal}."


def how(figures: Figures) -> str:
    """When, where and how this was measured."""
    runs = figures["runs"].values()
    minutes = sum(run["seconds"] * len(run["seeds"]) for run in runs) / 60
    changed = ", ".join(f"`{change}`" for change in figures["changed_everywhere"])
    most = max(len(run["seeds"]) for run in runs)
    least = min(len(run["seeds"]) for run in runs)
    each = "one seed" if most == 1 else f"{'' if least == most else 'up to '}{most} seeds"
    used = {seed for run in runs for seed in run["seeds"]}
    begun = [str(seed) for seed in figures["seeds"] if seed not in used]
    left_out = f" Not all runs have seed {' and '.join(begun)} yet, left out here." if begun else ""
    commits = figures.get("made_at", {figures["commit"]: 0})
    made_at = " and ".join(commits) + (", which train alike," if len(commits) > 1 else "")
    return (
        f"Measured {figures['date']} at {made_at} on {figures['hardware']}:"
        f" {len(runs)} runs, with {each} each,"
        f" {minutes:.0f} minutes of training in all, {figures['runs_at_once']} runs at once."
        f" Tables are of the first {figures['test_on']} test pictures and all their captions"
        f" (`--test-on`).{left_out}"
        + (f" All runs differ from the recipe by {changed} (`--set`)." if changed else "")
    )
