"""Fill the page of M3P's results: the paper's Tables 2 to 6.

    python -m benchmarks.reports.m3p_page

Reads results/m3p_flickr8k.json and results/m3p_step.json, fills docs/results-m3p.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.reports import cross_encoder_tables, pages, seeds
from benchmarks.reports.cross_encoder_tables import (
    ALL,
    EACH,
    ENGLISH,
    FINE_TUNED,
    NONE,
    Figures,
    Recalls,
    Setting,
    Table,
    other_languages,
)
from benchmarks.reports.seeds import Line
from benchmarks.results_io import DOCS, RESULTS, read_results

PAGE = DOCS / "results-m3p.md"

SWITCHED = "switched en"
"""Fine-tuned on code-switched English."""
FULL, PLAIN, MCT_2, MCT_4 = "M3P", "no MCT", "MCT 2", "MCT 4"
TASKS = {"xMLM": "no xMLM", "MC-MLM": "no MC-MLM", "MC-MRM": "no MC-MRM", "MC-VLM": "no MC-VLM"}
"""Pre-training tasks, and the name of the pre-training without MCT that leaves one out."""
ABLATED_ON = ENGLISH
"""What Table 5 fine-tunes on. `EACH`, as in the paper, takes a run per task and language."""
MAIN_RUN = f"{FULL} > {ALL}"

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

_SETTINGS = {on: FINE_TUNED[on] for on in (NONE, ENGLISH, EACH, ALL)}
TABLES = {
    2: Table(("M3P",), {(label,): (FULL, on) for on, label in _SETTINGS.items()}),
    3: Table(
        ("fine-tuned", "MCT"),
        {
            (label, mct): (name, on)
            for on, label in _SETTINGS.items()
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
    fill(read_results("m3p_flickr8k"))


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Fill the tables and claims of a document."""
    figures = cross_encoder_tables.only_complete_seeds(figures)
    contents = {f"table {number}": table(figures, number) for number in TABLES}
    lines = claims(figures)
    (order,) = seeds.write_lines(lines)
    contents |= {
        "order": pages.bullets(order),
        "compared": seeds.how_compared(lines),
        "how": cross_encoder_tables.how(figures),
        "speed": cross_encoder_tables.step_speed(RESULTS / "m3p_step.json"),
    }
    pages.fill(document, contents)


def table(figures: Figures, number: int) -> str:
    """Format one of the paper's tables with our figures."""
    return cross_encoder_tables.table(figures, TABLES[number], PAPER)


def claims(figures: Figures) -> list[Line]:
    """State each finding of the paper, and whether the figures here agree."""
    return [
        *_setting_claims(figures),
        *_language_count_claims(figures),
        *_task_claims(figures),
    ]


def _setting_claims(figures: Figures) -> list[Line]:
    """Tables 2, 3 and 6: settings compared in languages other than English, then in English."""
    compared = [
        ("Fine-tuning on English helps other languages", (FULL, ENGLISH), (FULL, NONE)),
        ("Fine-tuning on each language is above on English", (FULL, EACH), (FULL, ENGLISH)),
        ("Fine-tuning on all languages is above on each", (FULL, ALL), (FULL, EACH)),
        *(
            (f"MCT helps other languages, {_fine_tuned(label)}", (FULL, on), (PLAIN, on))
            for on, label in _SETTINGS.items()
        ),
        ("MCT in fine-tuning helps other languages", (FULL, SWITCHED), (FULL, ENGLISH)),
        ("So it does where pre-training had none", (PLAIN, SWITCHED), (PLAIN, ENGLISH)),
        ("MCT in fine-tuning alone is above pre-training alone", (PLAIN, SWITCHED),
         (FULL, ENGLISH)),
        ("MCT in both is above fine-tuning alone", (FULL, SWITCHED), (PLAIN, SWITCHED)),
    ]  # fmt: skip
    in_english = {
        "MCT in pre-training": ((FULL, NONE), (PLAIN, NONE)),
        "MCT in fine-tuning": ((FULL, SWITCHED), (FULL, ENGLISH)),
    }
    return [
        *cross_encoder_tables.comparisons(figures, PAPER, compared),
        *cross_encoder_tables.english_comparisons(figures, PAPER, in_english),
    ]


def _fine_tuned(label: str) -> str:
    return f"fine-tuned {label}" if label.startswith("on ") else label


def _language_count_claims(figures: Figures) -> list[Line]:
    """Table 4: the languages that MCT switches to, and those that it leaves out."""
    lines = []
    for count, in_paper, name in ((2, 3, MCT_2), (4, 5, MCT_4)):
        switched = other_languages(figures)[:count]
        not_switched = other_languages(figures)[count:]
        for codes, text in (
            (switched, f"MCT of {count} languages against none, in these"),
            (not_switched, f"MCT of {count} languages against none, in the others"),
        ):
            gain = cross_encoder_tables.gain(figures, (name, NONE), (PLAIN, NONE), codes)
            if gain is not None:
                lines.append(cross_encoder_tables.outcome(f"{text} ({', '.join(codes)})", gain))
        gain = cross_encoder_tables.gain(figures, (FULL, NONE), (name, NONE), switched)
        if gain is not None:
            paper = cross_encoder_tables.paper_gain(PAPER, (FULL, NONE), (name, NONE))
            text = (
                f"MCT of all languages against {count}, in these (the paper, of 50 against"
                f" {in_paper}: {paper:+.1f})"
            )
            lines.append(cross_encoder_tables.outcome(text, gain))
    return lines


def _task_claims(figures: Figures) -> list[Line]:
    """Table 5: what each task brings, and whether the paper's largest is largest here."""
    lines: list[Line] = []
    gains: dict[str, tuple[seeds.Gain, seeds.Gain]] = {}
    for task, name in TASKS.items():
        both = [
            cross_encoder_tables.gain(figures, (PLAIN, ABLATED_ON), (name, ABLATED_ON), codes)
            for codes in ([ENGLISH], other_languages(figures))
        ]
        if None not in both:
            english, others = (gain for gain in both if gain is not None)
            paper = [
                cross_encoder_tables.paper_gain(PAPER, (PLAIN, EACH), (name, EACH), english=en)
                for en in (True, False)
            ]
            text = (
                f"{task} helps (the paper, fine-tuned on each: {paper[0]:+.1f} in English,"
                f" {paper[1]:+.1f} in others)"
            )
            lines.append(Line(partial(_in_both, text), (english, others)))
            gains[task] = english, others
    if len(gains) == len(TASKS):
        best = [max(gains, key=lambda task: gains[task][part][0]) for part in (0, 1)]
        texts = [f"{task} ({gains[task][part].mean:+.1f})" for part, task in enumerate(best)]
        lines.append(
            seeds.plain(
                f"The task that brings most by the mean (the paper: MC-VLM in both): {texts[0]} in"
                f" English, {texts[1]} in others."
            )
        )
    if "xMLM" in gains:
        both_by_seed = [
            cross_encoder_tables.gains_by_seed(
                Recalls.of(figures, (PLAIN, ABLATED_ON)),
                Recalls.of(figures, (TASKS["xMLM"], ABLATED_ON)),
                codes,
            )
            for codes in (other_languages(figures), [ENGLISH])
        ]
        to_others, to_english = both_by_seed
        more = seeds.gain([to_others[seed] - to_english[seed] for seed in to_others])
        text = "xMLM brings more to other languages than to English (the paper: yes)"
        lines.append(
            Line(lambda gain: f"{text}: {seeds.verdict(gain)} ({seeds.signed(gain)}).", (more,))
        )
    return lines


def _in_both(text: str, english: seeds.Gain, others: seeds.Gain) -> str:
    return (
        f"{text}: {seeds.verdict(english)} in English ({seeds.signed(english)}),"
        f" {seeds.verdict(others)} in others ({seeds.signed(others)})."
    )


if __name__ == "__main__":
    main()
