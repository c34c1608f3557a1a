"""Fill the page of M3P's results from what was measured: the paper's Tables 2 to 6.

python benchmarks/m3p_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pages
import seeds
from measuring import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "results-m3p.md"

Figures = Mapping[str, Any]
Setting = tuple[str, str]
"""A pre-training, and what it was fine-tuned on."""

NONE, ENGLISH, EACH, ALL, SWITCHED = "nothing", "en", "each", "all", "switched en"
"""What is fine-tuned on; `NONE` is measured alone, `EACH` a run a language by its code."""
FULL, PLAIN, MCT_2, MCT_4 = "M3P", "no MCT", "MCT 2", "MCT 4"
TASKS = {"xMLM": "no xMLM", "MC-MLM": "no MC-MLM", "MC-MRM": "no MC-MRM", "MC-VLM": "no MC-VLM"}
"""Pre-training tasks, and what a pre-training without MCT and without one is called."""
ABLATED_ON = ENGLISH
"""What Table 5 fine-tunes on. `EACH`, as the paper, takes a run more a task and language."""
WHOLE = "whole test"
"""What a run is called that measures the one before it on all test pictures."""
JUDGED = f"{FULL} > {ALL}"
LEAST_RECALL, LEAST_GAIN, CANDIDATES = 40.0, 2.0, 50
"""What was set out to be reached fine-tuned on all languages: mR reading all pairs, and
points gained by reading so many of a dual encoder's candidates again."""

PAPER: dict[Setting, tuple[float, ...]] = {
    (FULL, NONE): (57.9, 36.8, 27.1, 20.4),
    (FULL, ENGLISH): (87.4, 58.5, 46.0, 36.8),
    (FULL, EACH): (87.4, 82.1, 67.3, 65.0),
    (FULL, ALL): (87.7, 82.7, 73.9, 72.2),
    (FULL, SWITCHED): (86.4, 71.8, 62.3, 59.6),
    (PLAIN, NONE): (54.9, 28.9, 25.2, 13.5),
    (PLAIN, ENGLISH): (86.0, 48.6, 37.1, 34.6),
    (PLAIN, EACH): (86.0, 80.2, 67.1, 66.2),
    (PLAIN, ALL): (86.7, 82.0, 73.5, 70.2),
    (PLAIN, SWITCHED): (85.4, 67.8, 59.2, 54.0),
    (MCT_2, NONE): (56.4, 37.1, 28.7, 23.0),  # of three languages: de, fr, cs
    (MCT_4, NONE): (58.2, 36.7, 26.9, 23.6),  # of five: ja and zh as well
    (TASKS["xMLM"], EACH): (79.6, 70.8, 56.4, 54.3),
    (TASKS["MC-MLM"], EACH): (84.3, 76.2, 64.1, 62.2),
    (TASKS["MC-MRM"], EACH): (85.5, 77.9, 65.0, 63.9),
    (TASKS["MC-VLM"], EACH): (75.4, 68.3, 52.7, 50.9),
}
"""mR of the paper on Multi30K: en, de, fr, cs."""


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


_FINE_TUNED = {
    NONE: "without fine-tuning", ENGLISH: "on English", EACH: "on each", ALL: "on all",
}  # fmt: skip
TABLES = {
    2: Table(("M3P",), {(label,): (FULL, on) for on, label in _FINE_TUNED.items()}),
    3: Table(
        ("fine-tuned", "MCT"),
        {
            (label, mct): (name, on)
            for on, label in _FINE_TUNED.items()
            for mct, name in (("", PLAIN), ("✓", FULL))
        },
    ),
    4: Table(
        ("languages of MCT",),
        {
            ("none",): (PLAIN, NONE),
            ("2 (the paper: 3)",): (MCT_2, NONE),
            ("4 (5)",): (MCT_4, NONE),
            ("6 (50)",): (FULL, NONE),
        },
    ),
    5: Table(
        ("pre-training, without MCT",),
        {("all four tasks",): (PLAIN, ABLATED_ON)}
        | {(f"without {task}",): (name, ABLATED_ON) for task, name in TASKS.items()},
        paper_fine_tunes_on=EACH,
    ),
    6: Table(
        ("MCT in pre-training", "MCT in fine-tuning"),
        {
            (before, after): (name, on)
            for before, name in (("", PLAIN), ("✓", FULL))
            for after, on in (("", ENGLISH), ("✓", SWITCHED))
        },
    ),
}


def main() -> None:
    fill(json.loads((RESULTS / "m3p_flickr8k.json").read_text(encoding="utf-8")))


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Put fresh tables between the marks of a document."""
    contents = {f"table {number}": table(figures, number) for number in TABLES}
    contents |= {"whole test": whole_test(figures), "order": order(figures), "how": how(figures)}
    pages.fill(document, contents)


def run_names(setting: Setting, languages: Iterable[str]) -> list[str]:
    """The runs that a row is made of."""
    pretraining, on = setting
    return [f"{pretraining} > {name}" for name in (languages if on == EACH else (on,))]


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
        for name, codes in zip(names, told_of, strict=True):
            run = figures["runs"].get(name, {"seeds": [], "test": {"all_pairs": {}}})
            measured = run["test"]["all_pairs"]
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


def others(figures: Figures) -> list[str]:
    """All languages but English."""
    return [language for language in figures["languages"] if language != ENGLISH]


def table(figures: Figures, number: int) -> str:
    """A row a setting: mR by language, over the others than English, and over all."""
    shape, languages = TABLES[number], list(figures["languages"])
    columns = [*([code] for code in languages), others(figures), languages]
    rows = []
    for labels, setting in shape.rows.items():
        measured = Measured.of(figures, setting)
        cells = (_cell(measured.mean(column)) for column in columns)
        english, *rest = PAPER[shape.paper(setting)]
        rows.append([*labels, *cells, f"{english:.1f}, {sum(rest) / 3:.1f}"])
    header = [*shape.header, *languages, "others", "average", "paper: en, others"]
    return pages.table(header, rows, text_columns=len(shape.header))


def _cell(by_seed: Mapping[int, float]) -> str:
    return seeds.cell(seeds.spread(list(by_seed.values()))) if by_seed else "–"


def whole_test(figures: Figures) -> str:
    """All test pictures: reading all pairs, and a dual encoder before and after re-ranking."""
    ways = {
        "all_pairs": "every pair read",
        "dual": "the default dual encoder alone",
        "reranked": f"its best {CANDIDATES} read again",
    }
    rows = []
    for name, run in figures["runs"].items():
        before, _, last = name.rpartition(" > ")
        if last == WHOLE:
            rows += [
                [before, label, *(seeds.cell(spread) for spread in run["test"][way].values())]
                for way, label in ways.items()
                if way in run["test"]
            ]
            languages = run["test"]["all_pairs"]
    if not rows:
        return "Not measured yet."
    return pages.table(["run", "", *languages], rows, text_columns=2)


def order(figures: Figures) -> str:
    """The paper's findings beside ours, computed."""
    return "\n".join(f"- {line}" for line in claims(figures)) or "Not measured yet."


def claims(figures: Figures) -> list[str]:
    """Each finding of the paper in a sentence, with whether the figures here agree."""
    return [*_of_settings(figures), *_of_number(figures), *_of_tasks(figures), *_goals(figures)]


def _gain(
    figures: Figures, better: Setting, worse: Setting, languages: Sequence[str]
) -> seeds.Gain | None:
    """How far one setting is above another, over the seeds that both have."""
    above, below = (Measured.of(figures, setting).mean(languages) for setting in (better, worse))
    common = [seed for seed in above if seed in below]
    if not common:
        return None
    return seeds.gain([above[seed] for seed in common], [below[seed] for seed in common])


def _paper_gain(better: Setting, worse: Setting, *, english: bool = False) -> float:
    """The same in the paper, of English or of the mean of the others."""
    part = slice(0, 1) if english else slice(1, 4)
    above, below = PAPER[better][part], PAPER[worse][part]
    return (sum(above) - sum(below)) / len(above)


def _of_settings(figures: Figures) -> list[str]:
    """Tables 2, 3 and 6: settings one above the other, in other languages than English."""
    compared = [
        ("Fine-tuning on English helps other languages", (FULL, ENGLISH), (FULL, NONE)),
        ("Fine-tuning on each language is above on English", (FULL, EACH), (FULL, ENGLISH)),
        ("Fine-tuning on all languages is above on each", (FULL, ALL), (FULL, EACH)),
        *(
            (f"MCT helps other languages, {_fine_tuned(label)}", (FULL, on), (PLAIN, on))
            for on, label in _FINE_TUNED.items()
        ),
        ("MCT in fine-tuning helps other languages", (FULL, SWITCHED), (FULL, ENGLISH)),
        ("So it does where pre-training had none", (PLAIN, SWITCHED), (PLAIN, ENGLISH)),
        ("MCT in fine-tuning alone is above pre-training alone", (PLAIN, SWITCHED),
         (FULL, ENGLISH)),
        ("MCT in both is above fine-tuning alone", (FULL, SWITCHED), (PLAIN, SWITCHED)),
    ]  # fmt: skip
    lines = []
    for text, better, worse in compared:
        gain = _gain(figures, better, worse, others(figures))
        if gain is not None:
            paper = _paper_gain(better, worse)
            lines.append(
                f"{text} (the paper: {paper:+.1f}): {seeds.verdict(gain)} ({seeds.signed(gain)})."
            )
    english = {
        "MCT in pre-training": ((FULL, NONE), (PLAIN, NONE)),
        "MCT in fine-tuning": ((FULL, SWITCHED), (FULL, ENGLISH)),
    }
    for text, (better, worse) in english.items():
        gain = _gain(figures, better, worse, [ENGLISH])
        if gain is not None:
            paper = _paper_gain(better, worse, english=True)
            lines.append(f"{text} to English itself (the paper: {paper:+.1f}): {_way(gain)}.")
    return lines


def _fine_tuned(label: str) -> str:
    return f"fine-tuned {label}" if label.startswith("on ") else label


def _of_number(figures: Figures) -> list[str]:
    """Table 4: the languages that few are switched to, and those that only more are."""
    lines = []
    for count, in_paper, name in ((2, 3, MCT_2), (4, 5, MCT_4)):
        switched, not_yet = others(figures)[:count], others(figures)[count:]
        for codes, text in (
            (switched, f"MCT of {count} languages against none, in these"),
            (not_yet, f"MCT of {count} languages against none, in the others"),
        ):
            gain = _gain(figures, (name, NONE), (PLAIN, NONE), codes)
            if gain is not None:
                lines.append(f"{text} ({', '.join(codes)}): {_way(gain)}.")
        gain = _gain(figures, (FULL, NONE), (name, NONE), switched)
        if gain is not None:
            paper = _paper_gain((FULL, NONE), (name, NONE))
            lines.append(
                f"MCT of all languages against {count}, in these (the paper, of 50 against"
                f" {in_paper}: {paper:+.1f}): {_way(gain)}."
            )
    return lines


def _way(gain: seeds.Gain) -> str:
    words = {"yes": "a gain", "no": "a loss"}
    verdict = seeds.verdict(gain)
    return f"{words.get(verdict, verdict)} ({seeds.signed(gain)})"


def _of_tasks(figures: Figures) -> list[str]:
    """Table 5: what each task brings, and whether the paper's largest is largest here."""
    lines, gains = [], {}
    for task, name in TASKS.items():
        found = [
            _gain(figures, (PLAIN, ABLATED_ON), (name, ABLATED_ON), codes)
            for codes in ([ENGLISH], others(figures))
        ]
        if None not in found:
            english, rest = (gain for gain in found if gain is not None)
            paper = [_paper_gain((PLAIN, EACH), (name, EACH), english=en) for en in (True, False)]
            lines.append(
                f"{task} helps (the paper: {paper[0]:+.1f} in English, {paper[1]:+.1f} in others):"
                f" {seeds.verdict(english)} in English ({seeds.signed(english)}),"
                f" {seeds.verdict(rest)} in others ({seeds.signed(rest)})."
            )
            gains[task] = english[0], rest[0]
    if len(gains) == len(TASKS):
        in_english, in_others = (
            max(gains, key=by.__getitem__)
            for by in ({task: gain[part] for task, gain in gains.items()} for part in (0, 1))
        )
        lines.append(
            f"The task that brings most (the paper: MC-VLM in both): {in_english} in English,"
            f" {in_others} in others."
        )
    if "xMLM" in gains:
        to_english, to_others = gains["xMLM"]
        lines.append(
            "xMLM brings more to other languages than to English (the paper: yes):"
            f" {'yes' if to_others > to_english else 'no'}"
            f" ({to_others:+.1f} and {to_english:+.1f})."
        )
    return lines


def _goals(figures: Figures) -> list[str]:
    """What was set out to be reached, on the whole test."""
    run = figures["runs"].get(f"{JUDGED} > {WHOLE}")
    if run is None:
        return []
    averages = {way: measured["average"] for way, measured in run["test"].items()}
    reached = averages["all_pairs"]["mean"]
    lines = [
        f"Fine-tuned on all languages, every pair of the whole test read, at least"
        f" {LEAST_RECALL:.0f} mR: {'yes' if reached >= LEAST_RECALL else 'no'} ({reached:.1f})."
    ]
    if "reranked" in averages:
        gain = seeds.gain(averages["reranked"]["seeds"], averages["dual"]["seeds"])
        lines.append(
            f"Reading the dual encoder's best {CANDIDATES} again adds at least"
            f" {LEAST_GAIN:.0f} points: {'yes' if gain[0] >= LEAST_GAIN else 'no'}"
            f" ({seeds.signed(gain)})."
        )
    return lines


def how(figures: Figures) -> str:
    """When, where and how this was measured."""
    runs = figures["runs"].values()
    minutes = sum(run["seconds"] * len(run["seeds"]) for run in runs) / 60
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(runs)} runs, with up to {max(len(run['seeds']) for run in runs)} seeds each,"
        f" {minutes:.0f} minutes of training in all, {figures['runs_at_once']} runs at once."
        f" Tables are of the first {figures['test_on']} test pictures and all their captions."
    )


if __name__ == "__main__":
    main()
