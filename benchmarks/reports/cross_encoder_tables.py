"""Tables and claims that the pages of M3P's and UC2's results share.

A row of a table is a `Setting`: a pre-training, and what it was fine-tuned on. `Recalls` holds
what its runs measured; claims compare two settings seed by seed, beside the paper's figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.reports.pages import NOT_MEASURED
from benchmarks.reports.seeds import Line
from polyglance.reproduce.target import Row, Target, find_target

Figures = Mapping[str, Any]
Setting = tuple[str, str]
"""A pre-training, and what it was fine-tuned on."""
Paper = Mapping[Setting, tuple[float, ...]]
"""mR of a paper on Multi30K: en, de, fr, cs."""

NONE, ENGLISH, EACH, ALL = "nothing", "en", "each", "all"
"""What is fine-tuned on: `NONE` is not fine-tuned, `EACH` has a run per language code."""
TRANSLATE_TEST = "translate-test"
"""Fine-tuned on English; test captions are translated into English."""
FINE_TUNED = {
    NONE: "without fine-tuning", ENGLISH: "on English",
    TRANSLATE_TEST: "on English, translate-test", EACH: "on each", ALL: "on all",
}  # fmt: skip
MIN_PAIRS_PER_SECOND = {"uc2_step": 10_000, "m3p_step": 9_500}
"""The goals for a training step on an accelerator, by the names of results."""
MAX_PEAK_GIB = 32
"""The goal for the memory of each objective."""


@dataclass(frozen=True)
class Table:
    """A table of the paper: its header, and the setting of each row by the row's labels."""

    header: tuple[str, ...]
    rows: Mapping[tuple[str, ...], Setting]
    paper_fine_tunes_on: str | None = None
    """What the paper fine-tunes on, where that differs from ours."""

    def paper_setting(self, setting: Setting) -> Setting:
        """Return the paper's setting that corresponds to one of ours."""
        return setting[0], self.paper_fine_tunes_on or setting[1]

    def run_names(self, languages: Sequence[str]) -> list[str]:
        """Return the names of the runs that the table needs."""
        return [name for setting in self.rows.values() for name in run_names(setting, languages)]


def run_names(setting: Setting, languages: Iterable[str]) -> list[str]:
    """Return the names of the runs that a setting needs."""
    pretraining, on = setting
    fine_tunings = {EACH: tuple(languages), TRANSLATE_TEST: (ENGLISH,)}.get(on, (on,))
    return [f"{pretraining} > {name}" for name in fine_tunings]


@dataclass(frozen=True)
class Recalls:
    """mR of a setting by language and seed, as far as it was measured."""

    by_language: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, figures: Figures, setting: Setting) -> Recalls:
        """Collect what the runs of a setting measured."""
        by_language: dict[str, Mapping[int, float]] = {}
        names, languages = run_names(setting, figures["languages"]), list(figures["languages"])
        measured_in = [[code] for code in languages] if setting[1] == EACH else [languages]
        protocol = "translated" if setting[1] == TRANSLATE_TEST else "all_pairs"
        for name, codes in zip(names, measured_in, strict=True):
            run = figures["runs"].get(name, {"seeds": [], "test": {}})
            test = run["test"].get(protocol, {})
            for code in codes:
                if code in test:
                    values = test[code]["values"]
                    by_language[code] = dict(zip(run["seeds"], values, strict=True))
        return cls(by_language)

    def mean(self, languages: Sequence[str]) -> dict[int, float]:
        """Return the mean over languages by seed; empty where a language is missing."""
        if not languages or not all(language in self.by_language for language in languages):
            return {}
        recalls = [self.by_language[language] for language in languages]
        common = [seed for seed in recalls[0] if all(seed in by_seed for by_seed in recalls)]
        return {seed: sum(by_seed[seed] for by_seed in recalls) / len(recalls) for seed in common}


def only_complete_seeds(figures: Figures, other: Figures | None = None) -> Figures:
    """Drop seeds that some run does not have yet, so that rows do not differ by chance.

    Args:
        figures: The results of one system.
        other: The results of another system in the same table, which must have the seeds too.

    Returns:
        The figures without those seeds; unchanged where no seed has all runs.
    """
    runs = [*figures["runs"].values(), *(other["runs"].values() if other else ())]
    complete = {seed for seed in figures["seeds"] if all(seed in run["seeds"] for run in runs)}
    if not complete:
        return figures
    return {
        **figures,
        "runs": {
            name: {
                **_select_seeds(run, [seed in complete for seed in run["seeds"]]),
                "seeds": [seed for seed in run["seeds"] if seed in complete],
            }
            for name, run in figures["runs"].items()
        },
    }


def _select_seeds(figures: Any, selected: Sequence[bool]) -> Any:
    """Recompute every spread, however deep, from the selected seeds alone."""
    if not isinstance(figures, Mapping):
        return figures
    if figures.keys() == seeds.spread([0.0]).keys():
        values = zip(figures["values"], selected, strict=True)
        return seeds.spread([value for value, is_selected in values if is_selected])
    return {name: _select_seeds(value, selected) for name, value in figures.items()}


def other_languages(figures: Figures) -> list[str]:
    """Return all languages but English."""
    return [language for language in figures["languages"] if language != ENGLISH]


def table(figures: Figures, layout: Table, paper: Paper) -> str:
    """Format a table: a row per setting with its mR, and the paper's in the last column."""
    rows = []
    for labels, setting in layout.rows.items():
        english, *others = paper[layout.paper_setting(setting)]
        cells = recall_cells(figures, setting)
        rows.append([*labels, *cells, f"{english:.1f}, {sum(others) / len(others):.1f}"])
    header = [*layout.header, *figures["languages"], "others", "average", "paper: en, others"]
    return pages.table(header, rows, text_columns=len(layout.header))


def recall_cells(figures: Figures, setting: Setting) -> list[str]:
    """Format mR of a setting by language, as mean of all but English, and as mean of all."""
    languages, recalls = list(figures["languages"]), Recalls.of(figures, setting)
    columns = [*([code] for code in languages), other_languages(figures), languages]
    return [_cell(recalls.mean(column)) for column in columns]


def _cell(by_seed: Mapping[int, float]) -> str:
    return seeds.cell(seeds.spread(list(by_seed.values()))) if by_seed else "–"


def gain(
    figures: Figures, better: Setting, worse: Setting, languages: Sequence[str]
) -> seeds.Gain | None:
    """Return how far one setting is above another.

    Over seeds and queries where the results compare just these, else over the seeds of both.
    """
    if "comparisons" in figures:
        _, target = find_target(figures["target"])
        cells = [_cells(setting, languages) for setting in (better, worse)]
        rows = [
            [row.name for row in target.rows if _row_cells(target, row, languages) == wanted]
            for wanted in cells
        ]
        for above, below in product(*rows):
            if (found := seeds.stored(figures, above, below, languages)) is not None:
                return found
    return gain_over(Recalls.of(figures, better), Recalls.of(figures, worse), languages)


def gain_over(better: Recalls, worse: Recalls, languages: Sequence[str]) -> seeds.Gain | None:
    """Return how far some recalls, possibly of another system, are above others."""
    by_seed = gains_by_seed(better, worse, languages)
    return seeds.gain(list(by_seed.values())) if by_seed else None


def _cells(setting: Setting, languages: Sequence[str]) -> dict[str, tuple[str | None, str]]:
    """Return by language the run of a setting, and the protocol by which it is evaluated."""
    names = run_names(setting, languages)
    runs = names if setting[1] == EACH else names * len(languages)
    protocol = "translate_test" if setting[1] == TRANSLATE_TEST else "test"
    return {code: (run, f"{protocol}.all_pairs") for code, run in zip(languages, runs, strict=True)}


def _row_cells(
    target: Target, row: Row, languages: Sequence[str]
) -> dict[str, tuple[str | None, str]]:
    """Return the same of a target's row."""
    return {
        column.name: (row.run_of(column), row.protocol or target.protocol)
        for column in target.columns
        if column.name in languages
    }


def gains_by_seed(better: Recalls, worse: Recalls, languages: Sequence[str]) -> dict[int, float]:
    """Return the difference of each seed that both have."""
    above, below = better.mean(languages), worse.mean(languages)
    return {seed: above[seed] - below[seed] for seed in above if seed in below}


def paper_gain(paper: Paper, better: Setting, worse: Setting, *, english: bool = False) -> float:
    """Return the paper's gain, in English or in the mean of its other languages."""
    part = slice(0, 1) if english else slice(1, 4)
    above, below = paper[better][part], paper[worse][part]
    return (sum(above) - sum(below)) / len(above)


def comparisons(
    figures: Figures, paper: Paper, compared: Iterable[tuple[str, Setting, Setting]]
) -> list[Line]:
    """Say of each claim whether one setting is above another in languages other than English."""
    lines = []
    for claim, better, worse in compared:
        difference = gain(figures, better, worse, other_languages(figures))
        if difference is not None:
            text = f"{claim} (the paper: {paper_gain(paper, better, worse):+.1f})"
            lines.append(Line(partial(_judged, text), (difference,)))
    return lines


def _judged(text: str, difference: seeds.Gain) -> str:
    return f"{text}: {seeds.verdict(difference)} ({seeds.signed(difference)})."


def english_comparisons(
    figures: Figures, paper: Paper, compared: Mapping[str, tuple[Setting, Setting]]
) -> list[Line]:
    """Say what each change brings to English itself."""
    lines = []
    for change, (better, worse) in compared.items():
        difference = gain(figures, better, worse, [ENGLISH])
        if difference is not None:
            published = paper_gain(paper, better, worse, english=True)
            lines.append(
                outcome(f"{change}, in English itself (the paper: {published:+.1f})", difference)
            )
    return lines


def outcome(text: str, difference: seeds.Gain) -> Line:
    """Return the sentence that something is a gain, a loss, or not decided."""
    return Line(lambda corrected: f"{text}: {gain_or_loss(corrected)}.", (difference,))


def gain_or_loss(difference: seeds.Gain) -> str:
    """Describe a difference as a gain, a loss, or not decided."""
    words = {"yes": "a gain", "no": "a loss"}
    first, comma, rest = seeds.verdict(difference).partition(",")
    return f"{words.get(first, first)}{comma}{rest} ({seeds.signed(difference)})"


def shared_machine_note(figures: Figures) -> str:
    """Say so where several runs shared the machine."""
    return ", with other runs on the same machine" if figures["runs_at_once"] > 1 else ""


def step_speed(path: Path) -> str:
    """Format pairs a second and peak memory of a training step, beside other ways.

    Args:
        path: The results of `benchmarks.speed.cross_encoder_step` for one system.
    """
    if not path.is_file():
        return NOT_MEASURED
    figures = json.loads(path.read_text(encoding="utf-8"))
    rates: dict[str, Any] = figures["pairs_per_second"]
    by_objective = any(isinstance(rate, dict) for rate in rates.values())
    columns = list(next(iter(rates.values()))) if by_objective else ["pairs a second"]
    rows = [
        [variant, *(f"{one:,}" for one in (rate.values() if by_objective else [rate]))]
        for variant, rate in rates.items()
    ]
    measured = (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']},"
        f" {figures['pairs']:,} pairs a step"
        f" ([{path.name}](../benchmarks/results/{path.name})):"
    )
    rate, goal = rates["packed"], MIN_PAIRS_PER_SECOND[path.stem]
    judged, where = (rate["mixture"], " by the mixture") if by_objective else (rate, "")
    sentences = [
        f"Goal: at least {goal:,} pairs a second, packed:"
        f" {'yes' if judged >= goal else 'no'}{where} ({judged:,})."
    ]
    parts = [measured, pages.table(["", *columns], rows)]
    if memory := figures.get("peak_gib"):
        parts += ["Peak memory in GiB:", _peak_memory(memory)]
        most = max(memory["packed"].values())
        sentences.append(
            f"Goal: at most {MAX_PEAK_GIB} GiB in every objective, packed:"
            f" {'yes' if most <= MAX_PEAK_GIB else 'no'} ({most:.1f})."
        )
    return "\n\n".join([*parts, " ".join(sentences)])


def _peak_memory(memory: Mapping[str, Mapping[str, float]]) -> str:
    objectives = list(next(iter(memory.values())))
    rows = [
        [variant, *(f"{peaks[name]:.1f}" for name in objectives)]
        for variant, peaks in memory.items()
    ]
    names = ["GiB"] if objectives == ["all"] else objectives
    return pages.table(["", *names], rows)


def how(figures: Figures) -> str:
    """Say when, where and with which settings this was measured."""
    runs = figures["runs"].values()
    minutes = sum(run["seconds"] * len(run["seeds"]) for run in runs) / 60
    changed = ", ".join(f"`{change}`" for change in figures["common_changes"])
    most = max(len(run["seeds"]) for run in runs)
    least = min(len(run["seeds"]) for run in runs)
    each = "one seed" if most == 1 else f"{'' if least == most else 'up to '}{most} seeds"
    used = {seed for run in runs for seed in run["seeds"]}
    incomplete = [str(seed) for seed in figures["seeds"] if seed not in used]
    left_out = (
        f" Seed {' and '.join(incomplete)} is left out: some runs do not have it yet."
        if incomplete
        else ""
    )
    commits = figures.get("commits", {figures["commit"]: 0})
    at = " and ".join(commits) + (", which train alike," if len(commits) > 1 else "")
    return (
        f"Measured {figures['date']} at {at} on {figures['hardware']}:"
        f" {len(runs)} runs, with {each} each,"
        f" {minutes:.0f} minutes of training in all, {figures['runs_at_once']} runs at once."
        f" Tables are of {_first(figures['test_images'])} test pictures and all their captions"
        f" (`--set test_images=`).{left_out}"
        + (f" All runs change the recipe by {changed} (`--set`)." if changed else "")
    )


def _first(count: int | None) -> str:
    return "all" if count is None else f"the first {count}"
